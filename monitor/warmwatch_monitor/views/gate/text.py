"""For a terminal and a log."""

from __future__ import annotations

from collections.abc import Iterator

from warmwatch_monitor.export.words import growth
from warmwatch_monitor.gate.growth import Comparison, Held, Kind
from warmwatch_monitor.views.gate.result import Result

_OF_THE_RUN = (Kind.AGENT_ERRORS, Kind.SHORT_STEPS)  # whatever it is compared with


def text(result: Result) -> str:
    """The verdict first, then what grew with its reasons, then what else there is to say."""
    return "\n".join(["", f"warmwatch check: {verdict(result)}", *_lines(result)])


def changes(place: str, comparison: Comparison, *, first: bool) -> str:
    """What is said of a baseline that was written, and what it was before."""
    lines = ["", f"warmwatch check: wrote {place}"]
    lines += [f"  {line}" for line in _numbers(comparison.held)]
    own = [one for one in comparison.remarks if one.kind in _OF_THE_RUN]
    lines += [f"  note: {growth.remark(one)}" for one in own]
    if first:
        lines.append(
            "  Look at it and commit it: without --update the check fails where more is compiled."
        )
        return "\n".join(lines)
    moved = [one for one in comparison.held if one.now != one.was]
    lines += [f"  {growth.whose(one)}: {growth.headline(one)}" for one in moved]
    return "\n".join(lines)


def verdict(result: Result) -> str:
    """One sentence."""
    if result.grew:
        many = "number" if len(result.grew) == 1 else "numbers"
        return f"failed: {len(result.grew)} {many} grew beyond {result.against}"
    if result.problems:
        return f"failed: it cannot be compared with {result.against}"
    return f"passed: nothing grew beyond {result.against}"


def _lines(result: Result) -> Iterator[str]:
    for held in result.grew:
        yield ""
        yield from _grown(held)
    if result.problems or result.notes:
        yield ""
    yield from (f"  {words}" for words in result.problems)
    yield from (f"  note: {words}" for words in result.notes)
    if result.passed:
        yield from (f"  {line}" for line in _numbers(result.held))
        yield from (
            f"  note: {growth.whose(one)}: less than the baseline has: {growth.headline(one)}"
            for one in _fell(result)
        )
    if result.accept and (result.grew or _fell(result)):
        yield ""
        yield f"  To make this the baseline: {result.accept}"


def _fell(result: Result) -> tuple[Held, ...]:
    return result.comparison.fell if result.comparison and result.passed else ()


def _grown(held: Held) -> Iterator[str]:
    yield f"  {growth.whose(held)}: {growth.headline(held)}"
    for words, remedy in growth.causes(held):
        yield f"    {words}"
        if remedy:
            yield f"      {remedy}"


def _numbers(held: tuple[Held, ...]) -> Iterator[str]:
    """A line for each whose numbers they are."""
    for who in dict.fromkeys(map(growth.whose, held)):
        yield f"{who}: {growth.numbers(one for one in held if growth.whose(one) == who)}"
