"""What to do first: remedies, with the time that each saves. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from warmwatch.shared.advice import AFTER_FIRST, FROM_THE_START, SURE
from warmwatch.shared.fallbacks import REFUSALS
from warmwatch.shared.phrases import counted, place, resumed, took
from warmwatch.shared.states import NEEDS_ATTENTION, State
from warmwatch.shared.values import NEW_INSTANCE
from warmwatch.shared.verdict import REPEATED_STEPS
from warmwatch_monitor.commands.report.goodput import CLEAN, DATA
from warmwatch_monitor.commands.report.parts import Failure, Goodput, Priced, Recompiled, Remedy
from warmwatch_monitor.model.run_summary import Provenance
from warmwatch_monitor.output.amounts import (
    WHOLE,
    broken_at,
    failure,
    failure_of,
    few,
    own_words,
)
from warmwatch_monitor.status.schema.rank import Break
from warmwatch_monitor.status.words.repeating import (
    dropped,
    remedy_of_dropped,
    remedy_of_failure,
)
from warmwatch_monitor.status.words.requested import OFF, remedy_of_calls

_WORTH_SECONDS, _WORTH_SHARE = 1.0, 0.01  # of the run: the lesser of the two
_DATA_SHARE = 0.1
_NAMED = 3  # functions with one remedy
_TUNED = ("max-autotune", "max-autotune-no-cudagraphs")
# the advice only moves this compilation to an earlier time: it saves nothing
_MOVES = frozenset({"grad_mode"})
# raised with fullgraph=True: the condition `fallback` has the remedy
_AT_LIMIT = "FailOnRecompileLimitHit"
_UNDER_A_STANCE = {
    "eager_calls": 'ran eagerly: torch.compiler.set_stance("force_eager")',
    "on_recompile_calls": (
        'ran under a stance in which new inputs run eagerly: set_stance("eager_on_recompile"); '
        'with "fail_on_recompile" these raise, and are counted'
    ),
}
_ABOVE = "As above."
_CALLS = remedy_of_calls()
_STANCE = "If that was not meant, set the stance only once all inputs are compiled, or not at all."


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
    """Remedies of a rank: first what left it without compiled code, or ended it; then the largest
    saving first; then those of unknown saving.

    ``time``: where it went. ``first_run``: no earlier comparable run is known, so its caches could
    only be empty; advice for the next run comes last then.
    """
    # no cache stores what Ctrl-C cut off: its graph was not counted
    last = compiled[-1] if (rank["end"] or {}).get("how") == "interrupted" and compiled else None
    is_cut_off = last and last.kind == "forward" and not last.ops
    stored = compiled[:-1] if is_cut_off else compiled
    caches = tuple(_caches(stored, what, first_run=first_run))
    failing, failed = _failures(rank, compiled)
    ended_it = rank["state"] == State.FAILED.value  # one of these failures may have done that
    by_saving = sorted(
        [
            *failing,
            *_recompiles(recompiled, time),
            *_dropped(compiled),
            *(() if first_run else caches),
            *_data(time, rank),
            *_tuning(compiled, what),
            *_outside(compiled),
        ],
        key=lambda remedy: -(remedy.saves or 0.0),
    )
    conditions = {held["condition"]: held for held in rank["conditions"]}
    first = tuple(_without_compiling(rank, conditions, failing=bool(failing)))
    failed = [remedy for remedy in failed if remedy.what not in {each.what for each in first}]
    above = {item.advice for item in recompiled if item.advice and remedy_of(item, by_saving)}
    return (
        *first,
        *(failed if ended_it else ()),
        *by_saving,
        *_of_unknown_saving(rank, conditions, what, above),
        *(() if ended_it else failed),
        *_breaks(breaks, above={remedy.what for remedy in first}),
        *(caches if first_run else ()),
    )


def refused(failure: Failure | None) -> Iterator[Remedy]:
    """What compiled code refused to do, which ended the run."""
    if failure and (refusal := REFUSALS.get(failure.end.refusal or "")):
        what_was, remedy = refusal
        yield Remedy(about=what_was, what=remedy)


def _without_compiling(
    rank: Mapping[str, Any], conditions: Mapping[str, Mapping[str, Any]], *, failing: bool
) -> Iterator[Remedy]:
    """What leaves the whole run without compiled code; ``failing``: a remedy says why."""
    for name in sorted(NEEDS_ATTENTION - {"long_compile"}):
        held = conditions.get(name, {})
        if held.get("advice") and not (failing and name == "nothing_captured"):
            yield Remedy(about=held["words"], what=held["advice"])
    compile = rank["compile"]
    compiled = compile.get("seconds") or compile.get("precompiled") or compile.get("eager_calls")
    if (by := compile.get("disabled")) and not by.endswith("_on_recompile"):
        about = f"compilation was turned off by {OFF.get(by, by)}"
        yield Remedy(about=about, what="Turn it on again, if that was not meant.")
    elif (
        (rank["steps"] and compile.get("wrappers"))
        and not (compiled or rank.get("compiling_workers"))
        and "never_compiled" not in conditions
    ):
        yield Remedy(about="nothing of what torch.compile returned has compiled", what=_CALLS)


def _failures(
    rank: Mapping[str, Any], compiled: Sequence[Priced]
) -> tuple[list[Remedy], list[Remedy]]:
    """Remedies for compilations that failed in step after step, and for the other ones."""
    failed = [priced for priced in compiled if priced.failure]
    by_function = defaultdict[str, list[Priced]](list)
    for compilation in failed:
        if failure(compilation.failure, None) != _AT_LIMIT:
            by_function[place(*compilation.function)].append(compilation)
    failing, others = list[Remedy](), list[Remedy]()
    for named, failures in by_function.items():
        last, row = failures[-1], max(priced.in_a_row for priced in failures)
        why = failure_of(last, WHOLE)
        remedy = remedy_of_failure(last)
        suffix = f" of {named}" if named else ""
        if row >= REPEATED_STEPS:
            seconds = sum(priced.seconds or 0.0 for priced in failures)
            about = f"compilation{suffix} failed in {row} steps in a row: {why}"
            failing.append(Remedy(about=about, what=remedy, saves=seconds or None))
        else:
            about = f"{counted(len(failures), 'compilation')}{suffix} failed: {why}"
            others.append(Remedy(about=about, what=remedy))
    if not failed and (count := rank["compile"].get("failures")):
        about = f"{counted(count, 'compilation')} failed"
        others.append(Remedy(about=about, what="See the training's stderr."))
    return failing, others


def _notable(time: Goodput | None) -> float:
    return min(_WORTH_SECONDS, _WORTH_SHARE * time.seconds) if time else 0.0


def _recompiles(recompiled: Sequence[Recompiled], time: Goodput | None) -> Iterator[Remedy]:
    """Remedies that save a notable time; the list of recompiles has the others."""
    groups = defaultdict[Any, list[Recompiled]](list)
    for item in recompiled:
        if item.count and item.category not in _MOVES and (advice := _advice(item)):
            groups[_cause(item) or advice].append(item)
    for group in groups.values():
        advices = {_advice(item) or "" for item in group}
        advice = advices.pop() if len(advices) == 1 else group[0].advice or ""
        if sum(item.seconds for item in group) < _notable(time):
            continue
        about = counted(sum(item.count for item in group), "recompile")
        about += f" ({', '.join(sorted({item.category for item in group}))})"
        names = [name for item in group if (name := place(*item.function))]
        about += f" of {few(list(dict.fromkeys(names)), _NAMED)}" if names else ""
        # each trial of a sweep compiles its model, whatever it does
        saves = sum(
            item.seconds * (1 - (item.advice in AFTER_FIRST) / item.count)
            for item in group
            if item.category != NEW_INSTANCE or item.in_a_row >= REPEATED_STEPS
        )
        yield Remedy(about=about, what=advice, saves=saves or None)


def _dropped(compiled: Sequence[Priced]) -> Iterator[Remedy]:
    """What was compiled again since torch._dynamo.reset() had dropped it."""
    groups = defaultdict[tuple[str, str], list[Priced]](list)
    for priced in compiled:
        if not priced.exported and (why := dropped(priced)) and (what := remedy_of_dropped(priced)):
            groups[why, what].append(priced)
    for (why, what), group in groups.items():
        seconds = sum(priced.seconds or 0.0 for priced in group)
        if seconds >= _WORTH_SECONDS:
            named = list(dict.fromkeys(name for each in group if (name := place(*each.function))))
            about = f"{counted(len(group), 'compilation')} of {few(named, _NAMED)}, {took(seconds)}"
            yield Remedy(
                about=f"{about}: {why}", what=what
            )  # right in a sweep, so it saves no time


def _cause(recompiled: Recompiled) -> Any:
    """Equal for a function and its rest after a graph break, if one value keeps changing."""
    rest = resumed(recompiled.name)
    name = rest[0] if rest else recompiled.name
    return (recompiled.advice, recompiled.file, name) if recompiled.often else None


def _advice(recompiled: Recompiled) -> str | None:
    """What to do about it. Most of what compiles in the first warm-up has to."""
    if recompiled.often:
        return f"{recompiled.often}."
    late = recompiled.after_warm or recompiled.in_a_row >= REPEATED_STEPS
    if late or recompiled.last_batch or recompiled.advice in SURE:
        return recompiled.advice
    return FROM_THE_START.get(recompiled.advice or "")


def remedy_of(recompiled: Recompiled, do: Sequence[Remedy]) -> int:
    """The number of its remedy in ``do``, from 1; 0 if it has none."""
    advices = (_advice(recompiled), recompiled.advice) if _advice(recompiled) else ()
    return next((number for number, remedy in enumerate(do, 1) if remedy.what in advices), 0)


def _caches(compiled: Sequence[Priced], what: Provenance, *, first_run: bool) -> Iterator[Remedy]:
    cold = [name for name, state in what.caches.items() if state == "cold"]
    missing = (priced for priced in compiled if priced.cache == "miss" and not priced.failure)
    missed = sum(priced.seconds or 0.0 for priced in missing)
    if not cold or missed < _WORTH_SECONDS:
        return
    about = f"cold compile caches ({', '.join(sorted(cold))})"
    keep = "Keep their directory from run to run (TORCHINDUCTOR_CACHE_DIR, TRITON_CACHE_DIR)"
    if first_run:
        keep += f": that saves the next run up to {took(missed)}."
        yield Remedy(about=f"{about}, as in a first run", what=keep)
    else:
        keep += ". The next run shows how much of it a warm cache saves."
        yield Remedy(about=about, what=keep, saves=missed)


def _data(time: Goodput | None, rank: Mapping[str, Any]) -> Iterator[Remedy]:
    """The waits for data in clean steps, with the seconds of their share.

    More workers do not help where each one compiles for itself, so what they compiled is a part
    with a remedy of its own. Workers compile at the same time.
    """
    spent = {share.name: share.seconds for share in time.shares} if time else {}
    waited = spent.get(DATA, 0.0)
    notable = max(_notable(time), _DATA_SHARE * (waited + spent.get(CLEAN, 0.0)))
    if not waited or waited < notable:
        return
    workers = rank.get("compiling_workers")
    compiled = min(waited, workers["seconds"] / workers["at_once"]) if workers else 0.0
    rest = waited - compiled
    if workers and (compiled >= _WORTH_SECONDS or rest < notable):
        many = counted(workers["processes"], "worker")
        keep = "Keep the DataLoader and its workers (persistent_workers=True): each new one"
        yield Remedy(
            about=f"{DATA}: {many} compiled, {took(workers['seconds'])} in all",
            what=f"{keep} compiles for itself; or compile in the training process."
            if workers["processes"] > workers["at_once"]
            else "Compile in the training process: each worker compiles for itself.",
            saves=compiled,
        )
    if rest >= notable:
        yield Remedy(
            about=DATA,
            what="Give the DataLoader more workers (num_workers, 0 by default; with "
            "persistent_workers=True they stay from epoch to epoch), or let it do less.",
            saves=rest,
        )


def _tuning(compiled: Sequence[Priced], what: Provenance) -> Iterator[Remedy]:
    tuned = sum(compilation.phase_seconds.get("autotune", 0.0) for compilation in compiled)
    if tuned >= _WORTH_SECONDS and any(wrapping.mode in _TUNED for wrapping in what.wrappings):
        yield Remedy(
            about="kernels were tuned (max-autotune)",
            what="`warmwatch compare` with a run in the default mode says whether that pays.",
            saves=tuned,
        )


def _outside(compiled: Sequence[Priced]) -> Iterator[Remedy]:
    """Builds of a library of its own, in a compiler that the training started."""
    builds = [priced for priced in compiled if "outside" in priced.kinds]
    seconds = sum(build.seconds or 0.0 for build in builds)
    if seconds >= _WORTH_SECONDS:
        names = dict.fromkeys(f"`{build.name}`" for build in builds if build.name)
        named = few(list(names), _NAMED) or "compilers"
        yield Remedy(
            about=f"{named} that the training started, for a build of its own",
            what="Build it before the training, or keep the library's build directory.",
            saves=seconds,
        )


def _of_unknown_saving(
    rank: Mapping[str, Any],
    conditions: Mapping[str, Mapping[str, Any]],
    what: Provenance,
    above: Collection[str],
) -> Iterator[Remedy]:
    """``above``: the advice that remedies above have, which the recompile limit has as well."""
    compile = rank["compile"]
    if (held := conditions.get("fallback")) and (advice := held.get("advice")):
        for text in above:
            advice = advice.replace(text, _ABOVE)
        yield Remedy(about=held["words"], what=advice)
    for slow in compile.get("inefficiencies") or ():
        if slow["kind"] != "flex_attention":  # the condition
            yield Remedy(about=slow["words"], what=slow["advice"])
    for calls, text in _UNDER_A_STANCE.items():
        if number := compile.get(calls):
            yield Remedy(about=f"{counted(number, 'call')} {text}", what=_STANCE)
    by_library = what.wrappings and all(wrapping.library for wrapping in what.wrappings)
    eager = compile.get("uncompiled_evaluations")
    if eager and compile.get("graphs") and not by_library:  # a trainer evaluates its own model
        yield Remedy(
            about=f"{counted(eager, 'evaluation')} called no compiled function",
            what="Call the compiled model in evaluations too, not the one passed to torch.compile.",
        )


def of_break(graph_break: Break) -> str:
    """Why a graph broke, and where."""
    places = (*graph_break.also, graph_break)
    where = broken_at((one.called, one.eager) for one in places)
    return "; ".join(filter(None, [own_words(graph_break.reason, WHOLE), where]))


def _breaks(breaks: Sequence[Break], above: Collection[str]) -> Iterator[Remedy]:
    for item in breaks:
        if item.advice:
            about = f"{counted(item.count, 'graph break')}: {of_break(item)}"
            yield Remedy(about=about, what=_ABOVE if item.advice in above else item.advice)
