"""For a job's summary or a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator

from warmwatch_monitor.export.words import growth
from warmwatch_monitor.gate.growth import Held
from warmwatch_monitor.views.gate.result import Result
from warmwatch_monitor.views.gate.text import verdict

_SPECIAL = re.compile(r"([\\*_\[\]<>|#~&@$`])")
_CODE = re.compile(r"(`[^`]*`)")


def markdown(result: Result) -> str:
    """A heading, a table of all numbers, and below it what grew with its reasons."""
    return "\n".join(_lines(result)) + "\n"


def _lines(result: Result) -> Iterator[str]:
    yield f"### warmwatch check {_plain(verdict(result))}"
    yield ""
    yield from (f"- **{_plain(words)}**" for words in result.problems)
    if result.held:
        yield ""
        yield "| | run | baseline | now |"
        yield "|---|---|---:|---:|"
    for one in result.held:
        grew, now = ("❌", f"**{_now(one)}**") if one.grew else ("✅", _now(one))
        named = f"{_plain(growth.title(one.measure))} | {_plain(growth.whose(one))}"
        yield f"| {grew} {named} | {growth.amount(one.measure, one.was)} | {now} |"
    yield from _reasons(result)
    if result.notes:
        yield ""
    yield from (f"- {_plain(words)}" for words in result.notes)


def _reasons(result: Result) -> Iterator[str]:
    for held in result.grew:
        yield ""
        yield f"**{_plain(growth.headline(held))}** ({_plain(growth.whose(held))})"
        yield ""
        for words, remedy in growth.causes(held):
            yield f"- {_plain(words)}" + (f"<br>{_plain(remedy)}" if remedy else "")


def _now(held: Held) -> str:
    return growth.amount(held.measure, held.now)


def _plain(text: str) -> str:
    """``text`` as itself: nothing of it means anything in Markdown but quotes of code."""
    parts = _CODE.split(text)
    return "".join(
        part.replace("|", r"\|") if _CODE.fullmatch(part) else _SPECIAL.sub(r"\\\1", part)
        for part in parts
    )
