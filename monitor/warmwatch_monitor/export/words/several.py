"""The headline of several runs: what lives, the least advanced first. Pure.

It takes names, states and words alone: a command that chose some runs of a daemon's answer says
the same as the daemon, and has no model to load for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from warmwatch.states import ENDED, State, least_advanced
from warmwatch_monitor.export.words.clauses import Headline, listed, shortly

_NAMED = 3  # of those that have ended


class Said(NamedTuple):
    """A run: its name and state, the words for one among others, and its own headline."""

    run: str
    state: State
    brief: str
    words: Headline


def several(runs: Iterable[Said]) -> Headline:
    """One run's own headline, or that of the only one that lives; else all that live, in brief.

    Runs that have ended are in the headline only where nothing lives.
    """
    ordered = _by_advancement(list(runs))
    living = [one for one in ordered if one.state not in ENDED]
    ended = [one for one in ordered if one.state in ENDED]
    if len(ordered) == 1:
        return ordered[0].words
    if not living:
        head = f"nothing runs now; {len(ended)} runs ended: "
        return Headline(listed(head, [_brief(one) for one in ended], ", ", _NAMED))
    earlier = (f"earlier: {_few(ended)}",) if ended else ()
    if len(living) == 1:
        return Headline(living[0].words.summary, (*living[0].words.details, *earlier))
    head = listed(f"{len(living)} runs: ", [_brief(one) for one in living], "; ")
    return Headline(head, (*(one.words.summary for one in living), *earlier))


def several_of(runs: Iterable[Mapping[str, Any]]) -> Headline:
    """The same of runs as an answer has them."""
    return several(
        Said(
            str(one["run"]),
            State(one["state"]),
            str(one["state"]),
            Headline(str(one["summary"]), tuple(one.get("details") or ())),
        )
        for one in runs
    )


def _brief(one: Said) -> str:
    return f"{shortly(one.run)} {one.brief}"


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
