"""One sentence for several runs: what lives, the least advanced first, then what has ended.

Pure, and of nothing but names and states: a command that chose some runs of a daemon's answer says
the same as the daemon, and has no model to load for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from warmwatch.states import ENDED, State, least_advanced

_NAMED = 3  # of those that have ended


class Said(NamedTuple):
    """A run: its name and state, the words for one among others, and its own whole sentence."""

    run: str
    state: State
    brief: str
    sentence: str


def several(runs: Iterable[Said]) -> str:
    """Of one run its own sentence; where one of them lives, that one's and what ended beside it."""
    ordered = _by_advancement(list(runs))
    living = [one for one in ordered if one.state not in ENDED]
    ended = [one for one in ordered if one.state in ENDED]
    if len(ordered) == 1:
        return ordered[0].sentence
    if not living:
        return f"nothing runs now; {len(ended)} runs ended: {_few(ended)}"
    head = living[0].sentence
    if len(living) > 1:
        head = f"{len(living)} runs: " + "; ".join(f"{one.run} {one.brief}" for one in living)
    return f"{head}; ended before: {_few(ended)}" if ended else head


def several_of(runs: Iterable[Mapping[str, Any]]) -> str:
    """The same of runs as an answer has them."""
    return several(
        Said(str(one["run"]), State(one["state"]), str(one["state"]), str(one["summary"]))
        for one in runs
    )


def _few(ended: Sequence[Said]) -> str:
    more = len(ended) - _NAMED
    named = ", ".join(f"{one.run} {one.brief}" for one in ended[:_NAMED])
    return f"{named} and {more} more" if more > 0 else named


def _by_advancement(runs: list[Said]) -> list[Said]:
    """The least advanced first; among those alike as they came."""
    states, ordered = {one.state for one in runs}, list[State]()
    while states:
        ordered.append(least_advanced(states))
        states.discard(ordered[-1])
    return sorted(runs, key=lambda one: ordered.index(one.state))
