"""What to do first: remedies, with the time that each saves. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from warmwatch.shared.phrases import counted, place
from warmwatch.shared.states import NEEDS_ATTENTION, State
from warmwatch.shared.verdict import REPEATED_STEPS
from warmwatch_monitor.model.run_summary import Provenance
from warmwatch_monitor.output.amounts import of_break, took
from warmwatch_monitor.report.goodput import CLEAN, DATA
from warmwatch_monitor.report.parts import Break, Goodput, Priced, Recompiled, Remedy
from warmwatch_monitor.status.words.repeating import failure, remedy_of_failure

_WORTH_SECONDS, _WORTH_SHARE = 1.0, 0.01  # of the run: the lesser of the two
_DATA_SHARE = 0.1
_TUNED = ("max-autotune", "max-autotune-no-cudagraphs")
# the advice only moves this compilation to an earlier time: it saves nothing
_MOVES = frozenset({"grad_mode"})
# the compiler phases that a cache saves; tracing always runs again
_CACHED = ("inductor", "kernel_compile", "autotune")


def remedies(
    rank: Mapping[str, Any],
    compiled: Sequence[Priced],
    recompiled: Sequence[Recompiled],
    breaks: Sequence[Break],
    what: Provenance,
    time: Goodput | None,
    *,
    first_run: bool,
) -> tuple[Remedy, ...]:
    """Remedies: first what left the run without compiled code, or ended it; then the largest saving
    first; then those of unknown saving.

    ``time``: where it went. ``first_run``: no earlier comparable run is known, so its caches could
    only be empty; advice for the next run comes last then.
    """
    caches = tuple(_caches(compiled, what, first_run=first_run))
    failing, failed = _failures(rank, compiled)
    ended_it = rank["state"] == State.FAILED.value  # one of these failures may have done that
    by_saving = sorted(
        [
            *failing,
            *_recompiles(recompiled, time),
            *(() if first_run else caches),
            *_data(time, rank),
            *_tuning(compiled, what),
        ],
        key=lambda one: -(one.saves or 0.0),
    )
    return (
        *_without_compiling(rank, failing=bool(failing)),
        *(failed if ended_it else ()),
        *by_saving,
        *_of_unknown_saving(rank, what),
        *(() if ended_it else failed),
        *_breaks(breaks),
        *(caches if first_run else ()),
    )


def _without_compiling(rank: Mapping[str, Any], *, failing: bool) -> Iterator[Remedy]:
    """What leaves the whole run without compiled code; ``failing``: a remedy says why."""
    known = _conditions(rank)
    for name in sorted(NEEDS_ATTENTION - {"long_compile"}):
        if name in known and not (failing and name == "nothing_captured"):
            yield Remedy(about=known[name]["words"], what=known[name].get("advice") or "")
    if rank["compile"].get("disabled"):
        yield Remedy(
            about="compilation was turned off", what="Turn it on again, if that was not meant."
        )


def _failures(
    rank: Mapping[str, Any], compiled: Sequence[Priced]
) -> tuple[list[Remedy], list[Remedy]]:
    """Remedies for compilations that failed in step after step, and for the other ones."""
    by_function = dict[str, list[Priced]]()
    for one in compiled:
        if one.failure:
            named = place(one.name, one.file, one.line)
            by_function.setdefault(named, []).append(one)
    failing, others = list[Remedy](), list[Remedy]()
    for named, those in by_function.items():
        last, row = those[-1], max(one.in_a_row for one in those)
        why = f": {failure(last.failure, last.failure_reason)}"
        remedy = remedy_of_failure(last.name, last.failure_hint)
        of = f" of {named}" if named else ""
        if row >= REPEATED_STEPS:
            seconds = sum(one.seconds or 0.0 for one in those)
            about = f"compilation{of} failed in {row} steps in a row{why}"
            failing.append(Remedy(about=about, what=remedy, saves=seconds or None))
        else:
            about = f"{counted(len(those), 'compilation')}{of} failed{why}"
            others.append(Remedy(about=about, what=remedy))
    if not by_function and (failures := rank["compile"].get("failures")):
        about = f"{counted(failures, 'compilation')} failed"
        others.append(Remedy(about=about, what="See the training's stderr."))
    return failing, others


def _recompiles(recompiled: Sequence[Recompiled], time: Goodput | None) -> Iterator[Remedy]:
    """Remedies that save a notable time; the list of recompiles has the others."""
    alike = dict[tuple[str, str, str], list[Recompiled]]()
    for one in recompiled:
        if one.category not in _MOVES and (advice := _advice(one)):
            named = place(one.name, one.file, one.line)
            alike.setdefault((advice, one.category, named), []).append(one)
    whole = time.seconds if time else 0.0
    for (advice, category, named), those in alike.items():
        seconds = sum(one.seconds for one in those)
        if seconds < min(_WORTH_SECONDS, _WORTH_SHARE * whole):
            continue
        about = f"{counted(sum(one.count for one in those), 'recompile')} ({category})"
        about += f" of {named}" if named else ""
        yield Remedy(about=about, what=f"{advice.removesuffix('.')}.", saves=seconds or None)


def _advice(one: Recompiled) -> str | None:
    """What to do about it. What compiles in the first warm-up has to, but for the last batch of an
    epoch.
    """
    late = one.after_warm or one.in_a_row >= REPEATED_STEPS or one.last_batch
    return one.often or (one.advice if late else None)


def remedy_of(one: Recompiled, do: Sequence[Remedy]) -> int:
    """The number of its remedy in ``do``, from 1; 0 if it has none."""
    advice, named = _advice(one), place(one.name, one.file, one.line)
    about = f" ({one.category}){f' of {named}' if named else ''}"
    for number, remedy in enumerate(do, 1):
        if advice and remedy.what.startswith(advice) and remedy.about.endswith(about):
            return number
    return 0


def _caches(compiled: Sequence[Priced], what: Provenance, *, first_run: bool) -> Iterator[Remedy]:
    cold = [name for name, state in what.caches.items() if state == "cold"]
    missed = sum(
        one.phase_seconds.get(phase, 0.0)
        for one in compiled
        if one.cache == "miss"
        for phase in _CACHED
    )
    if not cold or missed < _WORTH_SECONDS:
        return
    about = f"cold compile caches ({', '.join(sorted(cold))})"
    keep = "their directory from run to run (TORCHINDUCTOR_CACHE_DIR, TRITON_CACHE_DIR)"
    if first_run:
        yield Remedy(
            about=f"{about}, as in a first run",
            what=f"Keep {keep}: that saves the next run up to {took(missed)}.",
        )
    else:
        yield Remedy(
            about=about,
            what=f"Keep {keep}. The next run shows how much of it a warm cache saves.",
            saves=missed,
        )


def _data(time: Goodput | None, rank: Mapping[str, Any]) -> Iterator[Remedy]:
    """The waits for data in clean steps, with the seconds of their share.

    More workers do not help where each one compiles for itself.
    """
    workers = rank.get("compiling_workers") or {}
    spent = {one.name: one.seconds for one in time.shares} if time else {}
    waited = spent.get(DATA, 0.0)
    if waited >= max(_WORTH_SECONDS, _DATA_SHARE * (waited + spent.get(CLEAN, 0.0))):
        if (many := workers.get("processes")) and workers.get("seconds", 0.0) >= _WORTH_SECONDS:
            compiled = f"{counted(many, 'worker')} compiled, {took(workers['seconds'])} in all"
            about = f"{DATA}: {compiled}"
            what = (
                "Keep the DataLoader's workers (persistent_workers=True), since each new one "
                "compiles for itself; or compile in the training process."
            )
            yield Remedy(about=about, what=what, saves=waited)
            return
        yield Remedy(
            about=DATA,
            what="Give the DataLoader more workers, or let them do less.",
            saves=waited,
        )


def _tuning(compiled: Sequence[Priced], what: Provenance) -> Iterator[Remedy]:
    tuned = sum(one.phase_seconds.get("autotune", 0.0) for one in compiled)
    if tuned >= _WORTH_SECONDS and any(one.mode in _TUNED for one in what.wrappings):
        yield Remedy(
            about="kernels were tuned (max-autotune)",
            what="`warmwatch compare` with a run in the default mode says whether that pays.",
            saves=tuned,
        )


def _of_unknown_saving(rank: Mapping[str, Any], what: Provenance) -> Iterator[Remedy]:
    known = _conditions(rank)
    if (held := known.get("fallback")) and held.get("advice"):
        yield Remedy(about=held["words"], what=held["advice"])
    for slow in rank["compile"].get("inefficiencies") or ():
        if slow["kind"] != "flex_attention":  # the condition
            yield Remedy(about=slow["words"], what=slow["advice"])
    compile = rank["compile"]
    by_library = what.wrappings and all(one.library for one in what.wrappings)
    eager = compile.get("uncompiled_evaluations")
    if eager and compile.get("graphs") and not by_library:  # a trainer evaluates its own model
        yield Remedy(
            about=f"{counted(eager, 'evaluation')} called no compiled function",
            what="Call the compiled model in evaluations too, not the one passed to torch.compile.",
        )


def _breaks(breaks: Sequence[Break]) -> Iterator[Remedy]:
    for one in breaks:
        if one.advice:
            times = counted(one.count, "graph break")
            yield Remedy(about=f"{times}: {of_break(one.reason, one.whole)}", what=one.advice)


def _conditions(rank: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {one["condition"]: one for one in rank["conditions"]}
