"""Reasons of recompiles and graph breaks, with advice, as lines. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from warmwatch.shared.phrases import called_from, duration, one_line
from warmwatch.shared.phrases import place as place_of
from warmwatch_monitor.output.states import place

_MOST = 3  # of each kind: the rest is in /status
_LONGEST = 160


def reasons(runs: Sequence[dict[str, Any]], most: int = _MOST) -> list[tuple[str, str]]:
    """The last ``most`` of each kind, without duplicates, the worst run first.

    Several may have the same advice: only the last of these has it.
    """
    several = len(runs) > 1
    ordered = sorted(runs, key=lambda run: (place(run["state"]), run["run"]))
    found = [
        *islice(_once((one for run in ordered for one in _recompiles(run)), several=several), most),
        *islice(_once((one for run in ordered for one in _breaks(run)), several=several), most),
    ]
    last = {advice: at for at, (_, advice) in enumerate(found)}
    return [(words, advice * (last[advice] == at)) for at, (words, advice) in enumerate(found)]


def _once(
    found: Iterator[tuple[str, str, str, str]], *, several: bool
) -> Iterator[tuple[str, str]]:
    """Each reason of a run once, in the words of the first rank that has it."""
    seen = set()
    for run, words, reason, advice in found:
        if (run, reason) not in seen:
            seen.add((run, reason))
            whose = f"{run}: " if several else ""
            yield f"{whose}{words}: {one_line(reason, _LONGEST)}", one_line(advice, _LONGEST)


def _recompiles(run: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    for rank in run["ranks"]:
        last = rank["compile"].get("last") or ()
        for one in reversed(last):
            if one["category"] and one["reason"]:
                seconds = one.get("total_seconds", one["seconds"])
                took = "" if seconds is None else f" in {duration(seconds)}"
                words = f"recompiled{took} ({one['category']}){_what(one)}"
                yield run["run"], words, one.get("plain") or one["reason"], one["advice"] or ""


def _what(one: dict[str, Any]) -> str:
    named = place_of(one["name"], one.get("file"), one.get("line"))
    return f", {named}{called_from(one.get('caller'))}" if named else ""


def _breaks(run: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    for rank in run["ranks"]:
        for one in rank["compile"].get("breaks") or ():
            times = "" if one["count"] == 1 else f", {one['count']} times"
            yield run["run"], f"graph break{times}", one["reason"], one.get("advice") or ""
