"""The result of a check, for a terminal, Markdown, JSON: what exceeded the baseline, why, and what
to do about it. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from warmwatch.shared.advice import advice_for
from warmwatch.shared.breaks import break_remedy_for, plain_break
from warmwatch.shared.fallbacks import REMEDIES, reason_of
from warmwatch.shared.fallbacks import words as words_of_fallback
from warmwatch.shared.phrases import broken_place, counted, duration, place, took
from warmwatch_monitor.commands.check.baseline import RATIO, Counts, named
from warmwatch_monitor.commands.check.comparison import (
    SECONDS,
    Cause,
    Compared,
    Comparison,
    Kind,
    Moved,
    Remark,
)
from warmwatch_monitor.model.journal import Compilation, CudagraphSkip, GraphBreak
from warmwatch_monitor.model.snapshot import RunView
from warmwatch_monitor.output.amounts import own_words, reason
from warmwatch_monitor.output.document import Document, Item, Section, table
from warmwatch_monitor.output.document import markdown as markdown_of
from warmwatch_monitor.status.words.requested import never_compiled, plain_skip, turned_off

MOST = 5
_NOUNS: Mapping[str, tuple[str, str]] = {
    "graphs": ("graph", "graphs"),
    "graph_breaks": ("graph break", "graph breaks"),
    "recompiles": ("recompile", "recompiles"),
    "recompiles_after_warm": ("recompile after warm", "recompiles after warm"),
    "fallbacks": ("function left to run eagerly", "functions left to run eagerly"),
    "failures": ("failed compilation", "failed compilations"),
    "kernels": ("kernel", "kernels"),
    "cudagraph_skips": ("CUDA graph left out", "CUDA graphs left out"),
}
_LONGEST = 160
_WRAPPED = "(external_utils.py)"  # PyTorch's wrapper around a compiled module
_OF_FAILURE = "Run it with TORCH_LOGS=dynamo,inductor, which shows the error."
_OF_SKIP = "torch.compiler.cudagraph_mark_step_begin and static inputs help, or another mode."
_OF_WARMUP = (
    "It is measured in steady steps, so faster steps raise it too; if it "
    'changes from run to run: ignore = ["warmup_ratio"] in the baseline, or a wider '
    "tolerance. `warmwatch run --report -- CMD` shows where it goes, phase by phase."
)


def title(measure: str) -> str:
    """``graph breaks``, ``warm-up``."""
    return _NOUNS[measure][1] if measure in _NOUNS else "warm-up"


def amount(measure: str, value: float) -> str:
    """``3``, ``as long as 684 steps``, ``12 s``."""
    if measure == RATIO:
        return f"as long as {value:,.0f} steps" if value >= 100 else f"as long as {value:.3g} steps"
    return duration(value) if measure == SECONDS else f"{value:g}"


def whose(held: Compared | ComparedNumber) -> str:
    """``train, ranks 0-3``."""
    if not held.ranks:
        return held.run
    many = "rank" if held.ranks.isdecimal() else "ranks"
    return f"{held.run}, {many} {held.ranks}"


def headline(held: Compared) -> str:
    """``recompiles: 3, was 1``, and for the warm-up, which has a tolerance, its limit.

    The earlier value is the baseline's, or that of the ``--against`` command.
    """
    now, was = amount(held.measure, held.now), amount(held.measure, held.was)
    may = "" if held.limit == held.was else f" (may be {amount(held.measure, held.limit)})"
    return f"{title(held.measure)}: {now}, was {was}{may}"


def causes_of(held: Compared) -> list[tuple[str, str | None]]:
    """The distinct causes, each with its remedy; at most MOST."""
    counts: dict[tuple[str, str | None], int] = {}
    for number, cause in enumerate(held.causes, 1):
        line = _cause(cause, held.measure, held.causes[number:])
        times = cause.count if isinstance(cause, GraphBreak) else 1
        counts[line] = counts.get(line, 0) + times
    lines = [
        (text if count == 1 else f"{text} ({count} times)", then)
        for (text, then), count in counts.items()
    ]
    if not lines:
        lines = [(_moved(moved), None) for moved in held.moved]
        lines += [] if held.ranks else [(_OF_WARMUP, None)]
    left = len(lines) - MOST
    return lines[:MOST] + ([(f"and {left} more", None)] if left > 0 else [])


def _cause(cause: Cause, measure: str, later: Sequence[Cause]) -> tuple[str, str | None]:
    if isinstance(cause, GraphBreak):
        meant = plain_break(cause.reason, cause.name, library=cause.library)
        why = meant or own_words(cause.reason, _LONGEST)
        where = broken_place(*cause.function, cause.caller)
        return f"{where}: {why}" if where else why, break_remedy_for(cause)
    if isinstance(cause, CudagraphSkip):
        return _skip(cause, cause.reason), _OF_SKIP
    if isinstance(cause, Compilation):
        return _compilation(cause, measure, later)
    kind = reason_of(cause.setting)
    where = place(*cause.function)
    setting = f" ({cause.setting})" if cause.limit is not None else ""
    text = words_of_fallback(kind, where, limit=cause.limit, fullgraph=cause.fullgraph)
    return f"{text}{setting}", REMEDIES[kind]


def _compilation(
    compilation: Compilation, measure: str, later: Sequence[Cause]
) -> tuple[str, str | None]:
    where = place(*compilation.function) or "a graph"
    if measure == "failures":
        return f"{where}: {compilation.failure}", _OF_FAILURE
    if measure == "cudagraph_skips":
        return _skip(compilation, compilation.cudagraph_skip or ""), _OF_SKIP
    why = reason(compilation, _LONGEST) or "reason unknown"
    own = (
        cause
        for cause in later
        if isinstance(cause, Compilation) and cause.function == compilation.function
    )
    return f"{where}: {why}", advice_for(compilation, later=own)


def _skip(value: Compilation | CudagraphSkip, reason: str) -> str:
    where = place(*value.function) or "a graph"
    return f"{where}: {plain_skip(reason) or own_words(reason, _LONGEST)}"


def _moved(moved: Moved) -> str:
    """The changed counts of a function; its forward and backward are two compilations."""
    what = "the model" if moved.function.endswith(_WRAPPED) else moved.function
    if moved.was is None:
        return f"{what}: {_listed(moved.now)}; not in the baseline"
    return f"{what}: {_listed(moved.now)}; was {_listed(moved.was)}"


def _listed(counts: Counts) -> str:
    return ", ".join(
        counted(counts[f"{noun}s"], noun) for noun in _OF_FUNCTION if f"{noun}s" in counts
    )


# What is counted of a function, in the order of its text.
_OF_FUNCTION = ("compilation", "recompile", "kernel")

_REMARKS: Mapping[Kind, Callable[[Remark], str]] = {
    Kind.ANOTHER_TORCH: lambda it: f"torch is {it.what}: so what it compiles may differ",
    # the other side may be a command's, of --against
    Kind.ANOTHER_NAME: lambda it: f"{it.run}: compared with {it.what}, as each side has one run",
    Kind.UNKNOWN_RUN: lambda it: (
        f"{it.run}: this run is not in the baseline, so it is not compared; --update adds it"
    ),
    Kind.UNKNOWN_RANKS: lambda it: (
        f"{it.run}: rank {it.what} is not in the baseline, so it is not compared; --update adds it"
    ),
    Kind.UNKNOWN_COUNT: lambda it: (
        f"{it.run}: the baseline does not limit the number of {title(it.what)}, so they are "
        "not compared; --update adds it"
    ),
    Kind.AGENT_ERRORS: lambda it: (
        f"{it.run}: the agent caught {counted(int(it.what), 'error')} of its own: counts may be "
        "low; see `warmwatch doctor`"
    ),
    Kind.SHORT_STEPS: lambda it: (
        f"{it.run}: its steady step takes {took(float(it.what))}, too short to measure the "
        "warm-up in steps, so it is not compared; --against compares it in seconds, and "
        'ignore = ["warmup_ratio"] in the baseline removes this note'
    ),
    Kind.UNSETTLED: lambda it: (
        f"{it.run}: its speed had not settled after {counted(int(it.what), 'clean step')}, so its "
        "warm-up in steps may differ in the next run: let it train for longer, compare seconds "
        'with --against, or put "warmup_ratio" into ignore'
    ),
    Kind.NO_RUN: lambda it: (
        f"{it.run}: this run of the baseline did not start; --update removes it"
    ),
    Kind.NO_RANKS: lambda it: (
        f"{it.run}: rank {it.what} of the baseline did not start; with another number of ranks, "
        "run with --update"
    ),
    Kind.NO_COUNT: lambda it: (
        f"{it.run}: this torch does not report {title(it.what)}, which the baseline has; put "
        f'"{it.what}" into its ignore, or use the torch that it was written with'
    ),
    Kind.LOST_LINES: lambda it: (
        f"{it.run}: lines of its journal could not be written, so its {title(it.what)} are not "
        f'known; give its record more room (WARMWATCH_DIR), or put "{it.what}" into ignore'
    ),
    Kind.NEVER_WARM: lambda it: (
        f"{it.run}: it never became warm, but the baseline's did: let it train for more steps"
    ),
    Kind.NOT_COMPILED: lambda it: f"{it.run}: nothing was compiled, unlike in the baseline",
}


def uncompiled(run: RunView) -> str:
    """Why a run compiled nothing, if known."""
    figures = run.ranks[0].figures
    off = turned_off(figures)
    if off is None and figures.compile.wrappers:
        return f"{run.run}: {': '.join(never_compiled(figures))}"
    return f"{run.run}: nothing was compiled: {off or 'torch.compile was never called'}"


def unfinished(run: RunView, ranks: Iterable[int]) -> str:
    """The message that ranks were still running when the command ended."""
    return (
        f"{run.run}: rank {named(ranks)} was still running when the command ended, so nothing was "
        "compared: let the command wait for it"
    )


def restarted(run: str) -> str:
    """The message that a process has a second record, so the first one's counts are missing."""
    return (
        f"{run}: its process restarted when it had compiled (by exec, or with a second attach()). "
        "What it compiled before is not counted, so nothing was compared: have it restart "
        "before it compiles, or give each part a name of its own (WARMWATCH_RUN, attach(run=...))"
    )


def caches_left(caches: str) -> str:
    """The message that the folder ``caches`` was left for processes that still run."""
    return f"processes still run and use {caches}: remove {caches} when those processes have ended"


def remark(remark: Remark) -> str:
    return _REMARKS[remark.kind](remark)


def numbers(held: Iterable[Compared | ComparedNumber]) -> str:
    """The compared numbers: ``2 graphs, 0 graph breaks, warm-up as long as 684 steps``."""
    return ", ".join(
        f"{compared.now:g} {_NOUNS[compared.measure][compared.now != 1]}"
        if compared.measure in _NOUNS
        else f"warm-up {amount(compared.measure, compared.now)}"
        for compared in held
    )


_OF_THE_RUN = (Kind.AGENT_ERRORS, Kind.SHORT_STEPS, Kind.UNSETTLED)  # independent of the baseline


def changes(place: str, comparison: Comparison, *, first: bool) -> str:
    """The message for a baseline that was written, with its changes."""
    lines = ["", f"warmwatch check: wrote {place}"]
    lines += [f"  {line}" for line in _numbers(comparison.held)]
    own = [item for item in comparison.remarks if item.kind in _OF_THE_RUN]
    lines += [f"  note: {remark(item)}" for item in own]
    if first:
        lines.append(
            "  Look at it and commit it: without --update the check fails where more is compiled."
        )
        return "\n".join(lines)
    moved = [compared for compared in comparison.held if compared.now != compared.was]
    lines += [f"  {whose(compared)}: {headline(compared)}" for compared in moved]
    return "\n".join(lines)


class GrowthCause(Struct, frozen=True, kw_only=True):
    """Why a number grew."""

    words: str
    """The cause as a sentence, with PyTorch's reason."""
    advice: str | None
    """How to avoid it; null if that is unknown."""


class ComparedNumber(Struct, frozen=True, kw_only=True):
    """One number of a run, compared with the baseline's."""

    run: str
    """The run."""
    ranks: str | None
    """Its ranks, such as `0-3`; null for a number of the whole run."""
    measure: str
    """What is compared, as the baseline file names it."""
    baseline: float
    """The baseline's value."""
    now: float
    """The value that was measured."""
    limit: float
    """The largest value that passes."""
    grew: bool
    """Whether `now` exceeds `limit`."""
    words: str
    """The same as a clause."""
    causes: list[GrowthCause]
    """Why it grew; empty if it did not."""

    @property
    def fell(self) -> bool:
        return bool(self.ranks) and self.now < self.baseline


class CheckDocument(Struct, frozen=True, kw_only=True):
    """The result of `warmwatch check --json`."""

    schema_version: int = 1
    """1. Within a version, no key changes its meaning."""
    passed: bool
    """Whether nothing grew, and all could be compared."""
    summary: str
    """The result in one sentence."""
    compared: list[ComparedNumber]
    """All numbers that were compared."""
    problems: list[str]
    """Reasons other than growth for which it fails."""
    notes: list[str]
    """Remarks that do not make it fail."""

    @property
    def grew(self) -> list[ComparedNumber]:
        return [number for number in self.compared if number.grew]

    @property
    def fell(self) -> list[ComparedNumber]:
        return [number for number in self.compared if number.fell and self.passed]


def document(against: str, comparison: Comparison, problem: str | None = None) -> CheckDocument:
    """The result of a check.

    Args:
        against: the baseline file or the ``--against`` command.
        problem: why nothing was compared.
    """
    problems = [] if problem is None else [problem]
    problems += [remark(item) for item in comparison.remarks if item.fails]
    grew = [compared.measure for compared in comparison.grew]
    notes = (item for item in comparison.remarks if not item.fails)
    summary = f"passed: nothing grew beyond {against}"
    if grew:
        summary = f"failed: {counted(len(grew), 'number')} grew beyond {against}"
    elif problems:
        summary = f"failed: it cannot be compared with {against}"
    return CheckDocument(
        passed=not grew and not problems,
        summary=summary,
        compared=[_compared(compared) for compared in comparison.held],
        problems=problems,
        notes=[remark(note) for note in notes if note.kind is not Kind.UNSETTLED or RATIO in grew],
    )


def _compared(held: Compared) -> ComparedNumber:
    causes = causes_of(held) if held.grew else ()
    return ComparedNumber(
        run=held.run,
        ranks=held.ranks or None,
        measure=held.measure,
        baseline=held.was,
        now=held.now,
        limit=held.limit,
        grew=held.grew,
        words=headline(held),
        causes=[GrowthCause(words=sentence, advice=remedy) for sentence, remedy in causes],
    )


def text(result: CheckDocument, accept: str | None = None) -> str:
    """The verdict, then what grew with its reasons, then remarks.

    ``accept``: the command that accepts the growth.
    """
    lines = ["", f"warmwatch check: {result.summary}"]
    for number, causes in _grown(result):
        lines += ["", f"  {whose(number)}: {number.words}"]
        for sentence, *remedies in causes:
            lines += [f"    {sentence}", *(f"      {remedy}" for remedy in remedies)]
    if result.problems or result.notes:
        lines.append("")
    lines += [f"  {sentence}" for sentence in result.problems]
    lines += [f"  note: {sentence}" for sentence in result.notes]
    if result.passed:
        lines += [f"  {line}" for line in _numbers(result.compared)]
        lines += [
            f"  note: {whose(fall)}: less than the baseline has: {fall.words}"
            for fall in result.fell
        ]
    if accept and (result.grew or result.fell):
        lines += ["", f"  To make this the baseline: {accept}"]
    return "\n".join(lines)


def _grown(result: CheckDocument) -> Iterator[tuple[ComparedNumber, list[tuple[str, ...]]]]:
    """Each number that grew, and each of its causes with its remedy where that comes first."""
    shown = set[str | None]([None])
    for number in result.grew:
        causes = list[tuple[str, ...]]()
        for cause in number.causes:
            advice = () if cause.advice in shown else (cause.advice or "",)
            causes.append((cause.words, *advice))
            shown.add(cause.advice)
        yield number, causes


def _numbers(held: Iterable[Compared | ComparedNumber]) -> Iterator[str]:
    """One line for each group of ranks."""
    groups = defaultdict[str, list[Compared | ComparedNumber]](list)
    for compared in held:
        groups[whose(compared)].append(compared)
    for who, compareds in groups.items():
        yield f"{who}: {numbers(compareds)}"


def markdown(result: CheckDocument) -> str:
    """The verdict, a table of all numbers, and what grew with its reasons."""
    rows = [
        (
            f"{'❌' if number.grew else '✅'} {title(number.measure)}",
            whose(number),
            amount(number.measure, number.baseline),
            amount(number.measure, number.now),
        )
        for number in result.compared
    ]
    growth = (
        Section(
            f"{number.words} ({whose(number)})",
            items=tuple(Item(sentence, tuple(remedies)) for sentence, *remedies in causes),
        )
        for number, causes in _grown(result)
    )
    notes = Section("Notes", items=tuple(map(Item, result.notes)))
    return markdown_of(
        Document(
            title="warmwatch check",
            state="",
            answer=result.summary,
            warnings=tuple(result.problems),
            sections=(
                *([Section("Numbers", table(_COLUMNS, rows))] if rows else []),
                *growth,
                *([notes] if result.notes else []),
            ),
        )
    )


_COLUMNS = ("", "run", "baseline>", "now>")
