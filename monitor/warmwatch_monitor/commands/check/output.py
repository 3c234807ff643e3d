"""The result of a check, for a terminal, Markdown, JSON: what exceeded the baseline, why, and what
to do about it. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from msgspec import Struct

from warmwatch.shared.phrases import counted
from warmwatch_monitor.commands.check.baseline import named
from warmwatch_monitor.commands.check.comparison import (
    ComparedNumber,
    Comparison,
    amount,
    title,
)
from warmwatch_monitor.model.snapshot import RunView
from warmwatch_monitor.output.document import Document, Item, Section, table
from warmwatch_monitor.output.document import markdown as markdown_of
from warmwatch_monitor.status.words.requested import never_compiled, turned_off


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


def changes(place: str, comparison: Comparison, *, first: bool) -> str:
    """The message for a baseline that was written, with its changes."""
    lines = ["", f"warmwatch check: wrote {place}"]
    lines += [f"  {line}" for line in _numbers(comparison.numbers)]
    lines += [f"  note: {remark.text}" for remark in comparison.remarks if remark.of_run]
    if first:
        lines.append(
            "  Look at it and commit it: without --update the check fails where more is compiled."
        )
        return "\n".join(lines)
    moved = (number for number in comparison.numbers if number.now != number.baseline)
    return "\n".join([*lines, *(f"  {number.whose}: {number.words}" for number in moved)])


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
    problems += [remark.text for remark in comparison.remarks if remark.fails]
    grew = [number.measure for number in comparison.numbers if number.grew]
    summary = f"passed: nothing grew beyond {against}"
    if grew:
        summary = f"failed: {counted(len(grew), 'number')} grew beyond {against}"
    elif problems:
        summary = f"failed: it cannot be compared with {against}"
    return CheckDocument(
        passed=not grew and not problems,
        summary=summary,
        compared=[*comparison.numbers],
        problems=problems,
        notes=[
            remark.text
            for remark in comparison.remarks
            if not remark.fails and remark.if_grew in ("", *grew)
        ],
    )


def text(result: CheckDocument, accept: str | None = None) -> str:
    """The verdict, then what grew with its reasons, then remarks.

    ``accept``: the command that accepts the growth.
    """
    lines = ["", f"warmwatch check: {result.summary}"]
    for number, causes in _grown(result):
        lines += ["", f"  {number.whose}: {number.words}"]
        for sentence, *remedies in causes:
            lines += [f"    {sentence}", *(f"      {remedy}" for remedy in remedies)]
    if result.problems or result.notes:
        lines.append("")
    lines += [f"  {sentence}" for sentence in result.problems]
    lines += [f"  note: {sentence}" for sentence in result.notes]
    if result.passed:
        lines += [f"  {line}" for line in _numbers(result.compared)]
        lines += [
            f"  note: {fall.whose}: less than the baseline has: {fall.words}"
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


def _numbers(numbers: Iterable[ComparedNumber]) -> Iterator[str]:
    """One line for each group of ranks: ``train: 2 graphs, 0 graph breaks``."""
    groups = defaultdict[str, list[str]](list)
    for number in numbers:
        groups[number.whose].append(number.brief)
    for whose, briefs in groups.items():
        yield f"{whose}: {', '.join(briefs)}"


def markdown(result: CheckDocument) -> str:
    """The verdict, a table of all numbers, and what grew with its reasons."""
    rows = [
        (
            f"{'❌' if number.grew else '✅'} {title(number.measure)}",
            number.whose,
            amount(number.measure, number.baseline),
            amount(number.measure, number.now),
        )
        for number in result.compared
    ]
    growth = (
        Section(
            f"{number.words} ({number.whose})",
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
