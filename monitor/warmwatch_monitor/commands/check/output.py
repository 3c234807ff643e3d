"""The result of a check: for a terminal, Markdown, JSON."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from warmwatch_monitor.commands.check import wording
from warmwatch_monitor.commands.check.baseline import RATIO
from warmwatch_monitor.commands.check.comparison import Compared, Comparison, Kind
from warmwatch_monitor.commands.check.wording import remark
from warmwatch_monitor.output.document import Document, Item, Section, table
from warmwatch_monitor.output.document import markdown as markdown_of

_Causes = list[tuple[str, str | None]]


class Result(Struct, frozen=True, kw_only=True):
    """The result of a check.

    Attributes:
        against: the baseline file or the ``--against`` command.
        comparison: ``None`` if nothing was compared; then ``problem`` is the reason.
        accept: the command that accepts the growth.
    """

    against: str
    comparison: Comparison | None = None
    problem: str | None = None
    accept: str | None = None

    @property
    def held(self) -> tuple[Compared, ...]:
        return self.comparison.held if self.comparison else ()

    @property
    def grew(self) -> tuple[Compared, ...]:
        return self.comparison.grew if self.comparison else ()

    @property
    def problems(self) -> list[str]:
        """Reasons other than growth for which it fails."""
        names = [] if self.problem is None else [self.problem]
        remarks = self.comparison.remarks if self.comparison else ()
        return names + [remark(item) for item in remarks if item.fails]

    @property
    def notes(self) -> list[str]:
        remarks = self.comparison.remarks if self.comparison else ()
        notes = (item for item in remarks if not item.fails)
        failed = {RATIO} & {compared.measure for compared in self.grew}
        return [remark(note) for note in notes if note.kind is not Kind.UNSETTLED or failed]

    @property
    def passed(self) -> bool:
        return not self.grew and not self.problems


_OF_THE_RUN = (Kind.AGENT_ERRORS, Kind.SHORT_STEPS, Kind.UNSETTLED)  # independent of the baseline


def text(result: Result) -> str:
    """The verdict, then what grew with its reasons, then remarks."""
    return "\n".join(["", f"warmwatch check: {verdict(result)}", *_lines(result)])


def changes(place: str, comparison: Comparison, *, first: bool) -> str:
    """The message for a baseline that was written, with its changes."""
    lines = ["", f"warmwatch check: wrote {place}"]
    lines += [f"  {line}" for line in _numbers(comparison.held)]
    own = [remark for remark in comparison.remarks if remark.kind in _OF_THE_RUN]
    lines += [f"  note: {wording.remark(remark)}" for remark in own]
    if first:
        lines.append(
            "  Look at it and commit it: without --update the check fails where more is compiled."
        )
        return "\n".join(lines)
    moved = [compared for compared in comparison.held if compared.now != compared.was]
    lines += [f"  {wording.whose(compared)}: {wording.headline(compared)}" for compared in moved]
    return "\n".join(lines)


def verdict(result: Result) -> str:
    if result.grew:
        many = "number" if len(result.grew) == 1 else "numbers"
        return f"failed: {len(result.grew)} {many} grew beyond {result.against}"
    if result.problems:
        return f"failed: it cannot be compared with {result.against}"
    return f"passed: nothing grew beyond {result.against}"


def _lines(result: Result) -> Iterator[str]:
    for held, causes in _grown(result):
        yield ""
        yield f"  {wording.whose(held)}: {wording.headline(held)}"
        for sentence, remedy in causes:
            yield f"    {sentence}"
            if remedy:
                yield f"      {remedy}"
    if result.problems or result.notes:
        yield ""
    yield from (f"  {sentence}" for sentence in result.problems)
    yield from (f"  note: {sentence}" for sentence in result.notes)
    if result.passed:
        yield from (f"  {line}" for line in _numbers(result.held))
        yield from (
            f"  note: {wording.whose(fall)}: less than the baseline has: {wording.headline(fall)}"
            for fall in _fell(result)
        )
    if result.accept and (result.grew or _fell(result)):
        yield ""
        yield f"  To make this the baseline: {result.accept}"


def _fell(result: Result) -> tuple[Compared, ...]:
    return result.comparison.fell if result.comparison and result.passed else ()


def _grown(result: Result) -> Iterator[tuple[Compared, _Causes]]:
    """Each number that grew, with its causes; a remedy only where it comes first."""
    shown = set[str | None]()
    for held in result.grew:
        causes = wording.causes(held)
        yield held, [(words, None if remedy in shown else remedy) for words, remedy in causes]
        shown.update(remedy for _, remedy in causes)


def _numbers(held: tuple[Compared, ...]) -> Iterator[str]:
    """One line for each group of ranks."""
    for who in dict.fromkeys(map(wording.whose, held)):
        of_group = (compared for compared in held if wording.whose(compared) == who)
        yield f"{who}: {wording.numbers(of_group)}"


def markdown(result: Result) -> str:
    """The verdict, a table of all numbers, and what grew with its reasons."""
    numbers = [
        (
            f"{'❌' if compared.grew else '✅'} {wording.title(compared.measure)}",
            wording.whose(compared),
            wording.amount(compared.measure, compared.was),
            wording.amount(compared.measure, compared.now),
        )
        for compared in result.held
    ]
    notes = Section("Notes", items=tuple(map(Item, result.notes)))
    return markdown_of(
        Document(
            title="warmwatch check",
            state="",
            answer=verdict(result),
            warnings=tuple(result.problems),
            sections=(
                *([Section("Numbers", table(_COLUMNS, numbers))] if numbers else []),
                *(_growth(held, causes) for held, causes in _grown(result)),
                *([notes] if result.notes else []),
            ),
        )
    )


def _growth(held: Compared, causes: _Causes) -> Section:
    items = tuple(Item(sentence, (remedy,) if remedy else ()) for sentence, remedy in causes)
    return Section(f"{wording.headline(held)} ({wording.whose(held)})", items=items)


_COLUMNS = ("", "run", "baseline>", "now>")


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


def document(result: Result) -> CheckDocument:
    return CheckDocument(
        passed=result.passed,
        summary=verdict(result),
        compared=[_compared(compared) for compared in result.held],
        problems=result.problems,
        notes=result.notes,
    )


def _compared(held: Compared) -> ComparedNumber:
    causes = wording.causes(held) if held.grew else ()
    return ComparedNumber(
        run=held.run,
        ranks=held.ranks or None,
        measure=held.measure,
        baseline=held.was,
        now=held.now,
        limit=held.limit,
        grew=held.grew,
        words=wording.headline(held),
        causes=[GrowthCause(words=sentence, advice=remedy) for sentence, remedy in causes],
    )
