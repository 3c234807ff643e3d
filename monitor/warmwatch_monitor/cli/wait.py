"""``warmwatch wait``: blocks until a state is reached, and says on the way how far it is."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple

import click

from warmwatch_monitor.cli import options
from warmwatch_monitor.cli.answers import Answer, asker, note_missing_directory
from warmwatch_monitor.cli.choice import is_own, only
from warmwatch_monitor.cli.output import note, plain, rewrite, say
from warmwatch_monitor.errors import DaemonError, FleetError, UnknownRunError, UsageError
from warmwatch_monitor.views.waiting import (
    END_GOALS,
    GOALS,
    attached_at,
    is_about,
    is_over,
    is_reached,
    lives,
    may_never_end,
    was_warm,
)

_PAUSE_SECONDS = 0.25
_NAMED = 3
_WAITING = "; waiting for"  # what is said while it waits, and not once it has given up
_ABSENCE_SECONDS = 15.0  # a daemon that is started anew is back by then


class Outcome(Enum):
    """How a wait ends; the value is the exit code."""

    REACHED = 0
    ENDED = 4
    TIMEOUT = 124


class Look(NamedTuple):
    """One look at what is waited for.

    Attributes:
        outcome: how the wait ends; ``None`` where it goes on. state: of the runs, for telling
        whether anything changed. words: the sentence to show; late: the same at the timeout,
        where nothing is waited for any more.
    """

    state: str
    words: str
    outcome: Outcome | None = None
    late: str = ""


@click.command()
@click.argument("run", required=False)
@click.option(
    "--until", metavar="STATE", default="warm", help="A state, or ended (in any way).  [warm]"
)
@click.option("--timeout", metavar="S", help="Give up after S seconds; without it, never.")
@options.address
@options.directory
@options.prometheus
@options.access
@click.pass_context
def wait(
    ctx: click.Context,
    /,
    run: str | None,
    until: str,
    timeout: str | None,
    address: str | None,
    dir: str | None,
    prometheus: str | None,
    **access: str | None,
) -> None:
    """Block until RUN (or every living run of yours) is warm; also for one that has not begun yet.

    RUN is a name or a pattern such as 'gpt*' and means your own runs; gpt2@alice is alice's, '*@*'
    everybody's. A run that had ended before the wait began is passed over, so that the end of an
    earlier start does not answer for the launch you wait for: unless it had begun within the 10 s
    before, or RUN is named and --until asks for an end (ended, finished, failed, lost).

    \b
    Exit code: 0 reached
               4 the run ended before, or a compilation takes so long that it may hang
                 (long_compile; a wait for an end goes on)
               124 the timeout came before
               2 wrong usage
               6 the daemon or the Prometheus that was asked for does not answer
    """
    if until not in GOALS:
        raise UsageError(f"--until: {until!r} is no state; known are {', '.join(GOALS)}")
    patience = _patience(timeout)
    ask = asker(run, address=address, dir=dir, prometheus=prometheus, access=access, own=True)
    uid, clock = (os.geteuid(), None) if prometheus is None else (None, time.time)
    note_missing_directory(dir, " yet; it is waited for")
    with _progress() as tell:
        last = Wait(ask, run, until, tell, uid, clock).block(patience)
    if last.outcome is Outcome.REACHED:
        say(last.words)
    else:
        late = f"not {until} after {timeout} s: " if last.outcome is Outcome.TIMEOUT else ""
        note(f"{late}{last.words}")
    assert last.outcome is not None
    ctx.exit(last.outcome.value)


def _patience(text: str | None) -> float:
    try:
        seconds = float(text) if text is not None else float("inf")
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise UsageError(f"--timeout: {text!r} is not a number of seconds")
    return seconds


class Wait:
    """Waits for ``goal`` by asking again and again.

    Args:
        run: which runs, by name or pattern; without it those of ``uid`` that are seen alive.
        tell: takes the state and the sentence of each look that does not end the wait.
        uid: who waits; ``None`` where everybody's runs are his.
        clock: of who is asked, where the answers do not say what it is there.
    """

    def __init__(
        self,
        ask: Callable[[], Answer],
        run: str | None,
        goal: str,
        tell: Callable[[str, str], None],
        uid: int | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._ask, self._run, self._goal, self._tell, self._uid = ask, run, goal, tell, uid
        self._clock = clock
        self._seen_alive: set[str] = set()
        self._first_look: float | None = None
        self._began: float | None = None  # the same by the clock of who is asked, once it is known
        self._answered: float | None = None

    def block(self, patience: float) -> Look:
        """The look that ended it, or the last one at the timeout."""
        deadline = time.monotonic() + patience
        while True:
            look = self._look()
            if look.outcome is not None:
                return look
            if time.monotonic() >= deadline:
                words = look.late or look.words
                return Look(outcome=Outcome.TIMEOUT, state=look.state, words=words)
            self._tell(look.state, look.words)
            time.sleep(min(_PAUSE_SECONDS, max(0.0, deadline - time.monotonic())))

    def _look(self) -> Look:
        """Raises DaemonError, FleetError: who is asked never answered, or has not for long."""
        asked = time.monotonic()
        if self._first_look is None:
            self._first_look = asked
        try:
            answer = self._ask()
        except UnknownRunError as error:
            self._answered = time.monotonic()
            said = plain(str(error))
            return Look(state="unknown", words=f"{said}; waiting for it", late=said)
        except (DaemonError, FleetError) as error:
            if self._answered is None or time.monotonic() > self._answered + _ABSENCE_SECONDS:
                raise
            return Look(state="absent", words=plain(f"{error}; asking again"))
        self._answered = time.monotonic()
        self._note_when(answer.get("at"), asked - self._first_look)
        return self._judge(answer)

    def _judge(self, answer: Answer) -> Look:
        asked = [r for r in answer["runs"] if self._run is not None or is_own(r, self._uid)]
        runs = [run for run in asked if self._is_about(run)]
        if not runs:
            words = self._nothing(asked, answer["runs"])
            return Look(state="none", words=words, late=words.rpartition(_WAITING)[0])
        answer = only(answer, runs)
        summary = plain(str(answer["summary"]))
        if is_reached(answer, self._goal):
            return Look(outcome=Outcome.REACHED, state="reached", words=summary)
        if is_over(answer):
            words = "; ".join(
                f"{plain(run['summary'])} ({_too_early(run, self._goal)})" for run in runs
            )
            return Look(outcome=Outcome.ENDED, state="ended", words=words)
        if self._goal not in END_GOALS and any(map(may_never_end, runs)):
            words = f"{summary} (it may never be {self._goal})"
            return Look(outcome=Outcome.ENDED, state="hangs", words=words)
        state = " ".join(f"{run['run']}={run['state']}" for run in runs)
        return Look(state=state, words=summary)

    def _note_when(self, at: float | None, after: float) -> None:
        """When it began, by an answer of ``at`` that was asked for ``after`` the first look.

        That one may have had no answer, or one that does not say when it was made.
        """
        if at is None and self._clock is not None:
            at = self._clock()
        if at is not None and self._began is None:
            self._began = at - after

    def _is_about(self, run: Answer) -> bool:
        if lives(run):
            self._seen_alive.add(run["run"])
        return is_about(
            ends=self._run is not None and self._goal in END_GOALS,
            attached_at=attached_at(run),
            began=self._began,
            lived=run["run"] in self._seen_alive,
        )

    def _nothing(self, asked: Sequence[Answer], known: Sequence[Answer]) -> str:
        """What is waited for where none of the runs that were ``asked`` about counts."""
        if self._run is not None:
            before = "; ".join(plain(str(run["summary"])) for run in asked)
            return f"{before}; that was before this wait{_WAITING} it to begin anew"
        others = [plain(run["run"]) for run in known if lives(run) and not is_own(run, self._uid)]
        if not others:
            return f"no run lives{_WAITING} one"
        named = ", ".join(others[:_NAMED]) + (", ..." if len(others) > _NAMED else "")
        return f"no run of yours lives (another user's do: {named}){_WAITING} one"


def _too_early(run: Answer, goal: str) -> str:
    """Why the end of a run ended the wait for ``goal`` in vain."""
    if goal != "warm":
        return f"it ended and was not seen {goal}"
    if not was_warm(run):
        return "before it was warm"
    warmups = [rank["warmup"] for rank in run["ranks"]]
    eager = not any(warmup["ended"] or warmup["count"] for warmup in warmups)
    return "after it had run eagerly" if eager else "after it had been warm"


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, str], None]]:
    """A line that changes on a terminal; elsewhere a line whenever the state changes."""
    if sys.stderr.isatty():
        try:
            yield lambda _state, words: rewrite(words)
        finally:
            rewrite("")
        return
    told: list[str] = []

    def tell(state: str, words: str) -> None:
        if told[-1:] != [state]:
            told.append(state)
            note(words)

    yield tell
