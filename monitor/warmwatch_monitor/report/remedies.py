"""What to do first: remedies, with the time that each saves. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from warmwatch.shared.phrases import counted, place
from warmwatch.shared.states import NEEDS_ATTENTION
from warmwatch_monitor.model.run_summary import Provenance
from warmwatch_monitor.output.amounts import own_words, took
from warmwatch_monitor.report.goodput import CLEAN, DATA
from warmwatch_monitor.report.parts import Break, Goodput, Priced, Recompiled, Remedy

_WORTH_SECONDS, _WORTH_SHARE = 1.0, 0.01  # of the run: the lesser of the two
_DATA_SHARE = 0.1
_TUNED = ("max-autotune", "max-autotune-no-cudagraphs")
# the advice only moves this compilation to an earlier time: it saves nothing
_MOVES = frozenset({"grad_mode"})
# the compiler phases that a cache saves; tracing always runs again
_CACHED = ("inductor", "kernel_compile", "autotune")
_NOT_COMPILED = {
    "nothing_captured": "Find what breaks the graph in every frame (TORCH_LOGS=graph_breaks shows "
    "where). With DistributedDataParallel around a container of PyTorch (Sequential), compile the "
    "container before you wrap it.",
    "never_compiled": "Call the object that torch.compile returns, in the training itself.",
}


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
    """Remedies: first what did not compile, then the rest, the largest saving first.

    ``time``: where it went. ``first_run``: no earlier comparable run is known, so its caches could
    only be empty; advice for the next run comes last then.
    """
    caches = tuple(_caches(compiled, what, first_run=first_run))
    by_saving = sorted(
        [
            *_recompiles(recompiled, time),
            *(() if first_run else caches),
            *_data(time, rank),
            *_tuning(compiled, what),
        ],
        key=lambda one: -(one.saves or 0.0),
    )
    return (
        *_without_compiling(rank),
        *by_saving,
        *_of_unknown_saving(rank, breaks),
        *(caches if first_run else ()),
    )


def _without_compiling(rank: Mapping[str, Any]) -> Iterator[Remedy]:
    words = _conditions(rank)
    for name in sorted(NEEDS_ATTENTION - {"long_compile"}):
        if name in words:
            yield Remedy(about=words[name], what=_NOT_COMPILED[name])
    if failures := rank["compile"].get("failures"):
        yield Remedy(
            about=f"{counted(failures, 'compilation')} failed", what="See the training's stderr."
        )
    if rank["compile"].get("disabled"):
        yield Remedy(
            about="compilation was turned off", what="Turn it on again, if that was not meant."
        )


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
    """What to do about it; a recompile of the first warm-up costs little."""
    return one.often or (one.advice if one.after_warm else None)


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


def _of_unknown_saving(rank: Mapping[str, Any], breaks: Sequence[Break]) -> Iterator[Remedy]:
    words = _conditions(rank)
    if "fallback" in words:
        remedy = (
            "Call it in compiled code, or through torch.compile(flex_attention)."
            if words["fallback"].startswith("`flex_attention` ")
            else "Remove what makes it recompile; a higher "
            "torch._dynamo.config.recompile_limit only delays it."
        )
        yield Remedy(about=words["fallback"], what=remedy)
    for slow in rank["compile"].get("inefficiencies") or ():
        if slow["kind"] != "flex_attention":  # the condition
            yield Remedy(about=slow["words"], what=slow["advice"])
    for one in breaks:
        if one.advice:
            times = counted(one.count, "graph break")
            yield Remedy(about=f"{times}: {own_words(one.reason)}", what=one.advice)
    compile = rank["compile"]
    if (eager := compile.get("uncompiled_evaluations")) and compile.get("graphs"):
        yield Remedy(
            about=f"{counted(eager, 'evaluation')} called no compiled function",
            what="Call the compiled model in evaluations too, not the one passed to torch.compile.",
        )


def _conditions(rank: Mapping[str, Any]) -> dict[str, str]:
    return {one["condition"]: one["words"] for one in rank["conditions"]}
