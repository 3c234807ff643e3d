"""The headline of one or several runs, and the details that do not fit into it. Pure.

Order, colours and counts of the states are the same in every view.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared.states import ENDED, ENDED_STATES, State, least_advanced
from warmwatch_monitor.figures.declared import AnswerClause, Kind
from warmwatch_monitor.output.amounts import few

# worst first, living before ended; the styles are rich's
STYLES: Mapping[str, str] = {
    "stalled": "bold red",
    "recompiling": "bold yellow",
    "compiling": "bold yellow",
    "warming": "cyan",
    "starting": "cyan",
    "warm": "bold green",
    "eager": "green",
    "failed": "bold red",
    "lost": "bold red",
    "finished": "dim",
}
# of phases: similar to the page's colours, distinct from those of states
PHASE_STYLES: Mapping[str, str] = {
    "dynamo": "bright_cyan",
    "aot_autograd": "cyan",
    "inductor": "bright_blue",
    "kernel_compile": "magenta",
    "autotune": "bright_magenta",
    "cudagraph": "green",
    "cache_load": "bright_black",
    "other": "white",
    "outside": "yellow",
}
_STATE_ORDER = {state: place for place, state in enumerate(STYLES)}
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def place(state: str) -> int:
    """The position of ``state`` in the order; an unknown state is last."""
    return _STATE_ORDER.get(state, len(_STATE_ORDER))


def painted(text: str, style: str) -> str:
    """``text`` in ``style`` for a terminal that supports ANSI."""
    codes = ";".join(_CODES[word] for word in style.split())
    return f"\x1b[{codes}m{text}\x1b[0m" if codes else text


SOME_UNREAD = "some records cannot be read"


def some_unread(sources: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the records cannot be read now, by an answer's ``sources``."""
    return any(source["source"] == "records" and not source["up"] for source in sources)


def overview(answer: Mapping[str, Any]) -> str:
    """The headline above a row for each run: ``3 runs: 1 compiling, 2 warm but slower``.

    The answer's own headline if fewer than two live: that lists the runs.
    """
    living = [run for run in answer["runs"] if run["state"] not in ENDED_STATES]
    if len(living) < 2:
        return str(answer["summary"])
    ordered = sorted(living, key=lambda run: place(run["state"]))
    counts = Counter(run.get("state_words") or run["state"] for run in ordered)
    head = f"{len(living)} runs: {', '.join(f'{count} {state}' for state, count in counts.items())}"
    unread = some_unread(answer["sources"]) and SOME_UNREAD not in answer.get("details", ())
    return f"{head}; {SOME_UNREAD}" if unread else head


LONGEST = 120  # characters of a headline
_LONGEST_NAME = 40  # of a run, in its headline
_LONGEST_LISTED = 24  # of a run among others
_CUT, _JOINT = "...", "; "
HOW_TO_ATTACH = 'add "import warmwatch.auto" to a training, or start it with "warmwatch run"'
WHEN_SEEN = (
    "a training shows up no later than at its first step or compilation, one of several ranks at "
    "init_process_group()"
)
TO_BE_SEEN = f"{HOW_TO_ATTACH}; {WHEN_SEEN}"
# a training without the agent
LIKELY = {
    True: "is likely to compile",
    False: "is likely not to compile",
    None: "may compile",
}


_ORDER = {kind: at for at, kind in enumerate(Kind)}


class Words(Struct, frozen=True):
    """A fact in words; ``short``: its beginning, for a headline without enough room."""

    text: str
    short: str


def begin(short: str, rest: str = "", joint: str = _JOINT) -> Words:
    """``short``, and where there is room ``rest``."""
    return Words(f"{short}{joint}{rest}" if rest else short, short)


class Clause(Struct, frozen=True):
    """One fact in words.

    Attributes:
        text: the words. short: shorter words for a headline that ``text`` does not fit into; of a
        head, its title.
        joint: the separator if it directly follows the words of the state.
        alone: its words as a detail, if different. evidence: its words as a detail where the
        headline has ``text``.
        beyond: what it adds to a run's title, if that has a part of it.
    """

    text: str
    kind: Kind
    short: str = ""
    joint: str = _JOINT
    alone: str = ""
    evidence: str = ""
    beyond: str | None = None

    @property
    def detail(self) -> str:
        """Its words outside the headline."""
        return self.alone or self.text


class Headline(Struct, frozen=True):
    """An answer in words.

    Attributes:
        summary: fits ``LONGEST``. details: what it lacks, the most important first.
        clauses: all of a run's answer. nameless: a run's summary without its name. subtitle:
        without its title, too.
    """

    summary: str
    details: tuple[str, ...] = ()
    clauses: tuple[AnswerClause, ...] = ()
    nameless: str = ""
    subtitle: str = ""


def headline(name: str, head: Clause, clauses: Iterable[Clause]) -> Headline:
    """``name: head``, the clauses that fit behind it, and the others."""
    start = f"{shortened(name)}: " if name else ""
    fits = len(start) + len(head.text) <= LONGEST
    shown = head.text if fits else head.short or head.text
    summary = cut(f"{start}{shown}")
    made = [AnswerClause(kind=head.kind, text=shown, short=summary[len(start) :])]
    beyond = [head.text if head.beyond is None else head.beyond]
    if shown != head.text:  # its short words are in the headline, and the rest is a detail
        made += [AnswerClause(kind=head.kind, text=rest, short="") for rest in beyond if rest]
        beyond = []
    is_whole = made[-1].short == head.text
    for clause in sorted(
        (item for item in clauses if item.text), key=lambda value: _ORDER[value.kind]
    ):
        joint = clause.joint if len(made) == 1 else _JOINT
        short = _fitting(clause, LONGEST - len(summary) - len(joint)) if is_whole else ""
        is_whole = short == clause.text
        text = clause.evidence or clause.text if is_whole else clause.detail
        is_whole = is_whole and not clause.evidence  # which no headline needs, nor what follows
        made.append(AnswerClause(kind=clause.kind, text=text, short=short))
        if short:
            summary += f"{joint}{short}"
            more = short if clause.beyond is None else clause.beyond
            beyond += [joint, more] if more and any(beyond) else [more]
    details = tuple(
        answer_clause.text for answer_clause in made if answer_clause.short != answer_clause.text
    )
    return Headline(summary, details, tuple(made), summary[len(start) :], "".join(beyond))


def _fitting(clause: Clause, room: int) -> str:
    """As much of it as fits."""
    parts = () if clause.kind is Kind.REMEDY else (clause.text, clause.short)
    return next((text for text in parts if text and len(text) <= room), "")


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
    sentence = _several(runs)
    if not unread:
        return sentence
    longer = f"{sentence.summary}{_JOINT}{SOME_UNREAD}"
    if len(longer) <= LONGEST:
        return replace(sentence, summary=longer)
    return replace(sentence, details=(SOME_UNREAD, *sentence.details))


def _several(runs: Iterable[RunWords]) -> Headline:
    ordered = _by_advancement(list(runs))
    living = [run for run in ordered if run.state not in ENDED]
    ended = [run for run in ordered if run.state in ENDED]
    if len(ordered) == 1:
        return ordered[0].words
    if not living:
        head = f"nothing runs now; {len(ended)} runs ended: "
        return Headline(listed(head, [_brief(run) for run in ended], ", ", _NAMED))
    earlier = (
        (f"earlier: {few([f'{run.run} {run.brief}' for run in ended], _NAMED)}",) if ended else ()
    )
    if len(living) == 1:
        return Headline(living[0].words.summary, (*living[0].words.details, *earlier))
    head = listed(f"{len(living)} runs: ", [_brief(run) for run in living], "; ")
    return Headline(head, (*(run.words.summary for run in living), *earlier))


def details_of(run: Mapping[str, Any]) -> tuple[str, ...]:
    """What the summary of a run of a ``/status`` answer lacks, the most important first."""
    return tuple(clause["text"] for clause in run["clauses"] if clause["short"] != clause["text"])


def several_of(runs: Iterable[Mapping[str, Any]], answer: Mapping[str, Any]) -> Headline:
    """The headline of ``runs`` of a ``/status`` answer."""
    parts = (
        RunWords(
            str(run["run"]),
            State(run["state"]),
            str(run.get("state_words") or run["state"]),  # an older daemon has no words
            Headline(str(run["summary"]), details_of(run)),
        )
        for run in runs
    )
    return several(parts, unread=some_unread(answer["sources"]))


def _brief(run: RunWords) -> str:
    return f"{shortened(run.run, _LONGEST_LISTED)} {run.brief}"


def _by_advancement(runs: list[RunWords]) -> list[RunWords]:
    """Least advanced first; equal ones in input order."""
    states, ordered = {run.state for run in runs}, list[State]()
    while states:
        ordered.append(least_advanced(states))
        states.discard(ordered[-1])
    return sorted(runs, key=lambda sentence: ordered.index(sentence.state))
