"""The headline of one or several runs, and the details that do not fit into it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared.states import ENDED, State, least_advanced
from warmwatch_monitor.output.amounts import few
from warmwatch_monitor.output.states import SOME_UNREAD, some_unread

LONGEST = 120  # characters of a headline
_LONGEST_NAME = 40  # of a run, in its headline
_LONGEST_LISTED = 24  # of a run among others
_CUT, _JOINT = "...", "; "


class Importance(IntEnum):
    """Rank of a clause, most important first; equal ones stay in input order."""

    LOSS = 1  # lost ranks, a collective near its timeout
    WAIT = 2  # what the run waits for, and how long
    REASON = 3  # why it is in this state
    ATTENTION = 4  # a condition that needs attention
    NOTE = 5  # other conditions, differences between ranks
    CONTEXT = 6  # the machine: GPUs, compile workers, load
    REMEDY = 7  # what to do; never in the headline


class Clause(Struct, frozen=True):
    """One fact in words.

    Attributes:
        text: the words. importance: their rank among the clauses.
        short: shorter words for a headline that ``text`` does not fit into.
        joint: the separator if it directly follows the words of the state.
        alone: its words as a detail, if different. in_full: it is a detail in any case, because
        these words have the evidence, which no headline needs.
    """

    text: str
    importance: Importance
    short: str = ""
    joint: str = _JOINT
    alone: str = ""
    in_full: bool = False

    @property
    def detail(self) -> str:
        """Its words outside the headline."""
        return self.alone or self.text


class Headline(Struct, frozen=True):
    """An answer in words: ``summary`` fits ``LONGEST``; ``details``, the most important first."""

    summary: str
    details: tuple[str, ...] = ()


def headline(name: str, head: str, clauses: Iterable[Clause]) -> Headline:
    """``name: head``, the clauses that fit behind it, and the others."""
    whole = f"{shortened(name)}: {head}" if name else head
    summary = cut(whole)
    rest = sorted((one for one in clauses if one.text), key=lambda one: one.importance)
    details = [] if summary == whole else [head]
    while rest and not details and rest[0].importance is not Importance.REMEDY:
        one = rest[0]
        joined = f"{summary}{one.joint if summary == whole else _JOINT}"
        if len(longer := f"{joined}{one.text}") <= LONGEST:
            summary = longer
            details = [one.detail] if one.in_full else []
        elif one.short and len(longer := f"{joined}{one.short}") <= LONGEST:
            summary, details = longer, [one.detail]
        else:
            break
        del rest[0]
    return Headline(summary, (*details, *(one.detail for one in rest)))


def listed(head: str, parts: Sequence[str], joint: str, most: int = 8) -> str:
    """``head`` and as many of ``parts`` as fit: ``5 runs: a warm; b warm; and 3 more``."""
    for shown in range(min(len(parts), most), 0, -1):
        more = len(parts) - shown
        text = head + joint.join([*parts[:shown], *([f"and {more} more"] if more else [])])
        if len(text) <= LONGEST:
            return text
    return cut(head + parts[0]) if parts else cut(head)


def shortened(name: str, longest: int = _LONGEST_NAME) -> str:
    """A run's name; a long one loses its middle, because names usually differ at the ends."""
    if len(name) <= longest:
        return name
    end = longest // 3
    return f"{name[: longest - end - len(_CUT)]}{_CUT}{name[-end:]}"


def cut(text: str, longest: int = LONGEST) -> str:
    """``text``, cut off after ``longest`` characters."""
    return text if len(text) <= longest else f"{text[: longest - len(_CUT)]}{_CUT}"


_NAMED = 3  # of those that have ended


class RunWords(Struct, frozen=True):
    """A run: its name and state, its words in a list of runs, and its own headline."""

    run: str
    state: State
    brief: str
    words: Headline


def several(runs: Iterable[RunWords], *, unread: bool) -> Headline:
    """The headline of a single run or the only living run; else a list of the living runs.

    Ended runs are in the headline only if no run lives. ``unread``: some records cannot be read.
    That is added to the headline if it fits, else it is the first detail.
    """
    words = _several(runs)
    if not unread:
        return words
    longer = f"{words.summary}{_JOINT}{SOME_UNREAD}"
    if len(longer) <= LONGEST:
        return replace(words, summary=longer)
    return replace(words, details=(SOME_UNREAD, *words.details))


def _several(runs: Iterable[RunWords]) -> Headline:
    ordered = _by_advancement(list(runs))
    living = [one for one in ordered if one.state not in ENDED]
    ended = [one for one in ordered if one.state in ENDED]
    if len(ordered) == 1:
        return ordered[0].words
    if not living:
        head = f"nothing runs now; {len(ended)} runs ended: "
        return Headline(listed(head, [_brief(one) for one in ended], ", ", _NAMED))
    earlier = (
        (f"earlier: {few([f'{one.run} {one.brief}' for one in ended], _NAMED)}",) if ended else ()
    )
    if len(living) == 1:
        return Headline(living[0].words.summary, (*living[0].words.details, *earlier))
    head = listed(f"{len(living)} runs: ", [_brief(one) for one in living], "; ")
    return Headline(head, (*(one.words.summary for one in living), *earlier))


def several_of(runs: Iterable[Mapping[str, Any]], answer: Mapping[str, Any]) -> Headline:
    """The headline of ``runs`` of a ``/status`` answer."""
    words = (
        RunWords(
            str(one["run"]),
            State(one["state"]),
            str(one["state"]),
            Headline(str(one["summary"]), tuple(one.get("details") or ())),
        )
        for one in runs
    )
    return several(words, unread=some_unread(answer["sources"]))


def _brief(one: RunWords) -> str:
    return f"{shortened(one.run, _LONGEST_LISTED)} {one.brief}"


def _by_advancement(runs: list[RunWords]) -> list[RunWords]:
    """Least advanced first; equal ones in input order."""
    states, ordered = {one.state for one in runs}, list[State]()
    while states:
        ordered.append(least_advanced(states))
        states.discard(ordered[-1])
    return sorted(runs, key=lambda one: ordered.index(one.state))
