"""``warmwatch wait``: blocks until a state is reached, and says on the way how far it is."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

import click

from warmwatch_monitor.cli import options
from warmwatch_monitor.cli.answers import Answer, asker, note_missing_directory
from warmwatch_monitor.cli.choice import only
from warmwatch_monitor.cli.output import fits, note, plain, say
from warmwatch_monitor.errors import DaemonError, FleetError, UnknownRunError, UsageError
from warmwatch_monitor.views.waiting import GOALS, is_over, is_reached, lives, was_warm

_PAUSE_SECONDS = 0.25
_ABSENCE_SECONDS = 15.0  # a daemon that is started anew is back by then


class Outcome(Enum):
    """How a wait ends; the value is the exit code."""

    REACHED = 0
    ENDED = 4
    TIMEOUT = 124


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look at what is waited for.

    Attributes:
        outcome: how the wait ends; ``None`` where it goes on. state: of the runs, for telling
        whether anything changed. words: the sentence to show.
    """

    outcome: Outcome | None = None
    state: str
    words: str


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
    """Block until RUN (or every living run) is warm; also for a run that has not begun yet.

    RUN is a name or a pattern such as 'gpt*'. Runs that had ended before the wait began are passed
    over, unless RUN names them.

    \b
    Exit code: 0 reached
               4 the run ended before
               124 the timeout came before
               2 wrong usage
               6 the daemon or the Prometheus that was asked for does not answer
    """
    if until not in GOALS:
        raise UsageError(f"--until: {until!r} is no state; known are {', '.join(GOALS)}")
    patience = _patience(timeout)
    ask = asker(run, address=address, dir=dir, prometheus=prometheus, **access)
    note_missing_directory(dir, " yet; it is waited for")
    with _progress() as tell:
        last = Wait(ask, run, until, tell).block(patience)
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
        run: which runs, by name or pattern; without it those that are seen alive meanwhile.
        tell: takes the state and the sentence of each look that does not end the wait.
    """

    def __init__(
        self,
        ask: Callable[[], Answer],
        run: str | None,
        goal: str,
        tell: Callable[[str, str], None],
    ) -> None:
        self._ask, self._run, self._goal, self._tell = ask, run, goal, tell
        self._lived: set[str] = set()
        self._answered: float | None = None

    def block(self, patience: float) -> Look:
        """The look that ended it, or the last one at the timeout."""
        deadline = time.monotonic() + patience
        while True:
            look = self._look()
            if look.outcome is not None:
                return look
            self._tell(look.state, look.words)
            if time.monotonic() >= deadline:
                return Look(outcome=Outcome.TIMEOUT, state=look.state, words=look.words)
            time.sleep(min(_PAUSE_SECONDS, max(0.0, deadline - time.monotonic())))

    def _look(self) -> Look:
        """Raises DaemonError, FleetError: who is asked never answered, or has not for long."""
        try:
            answer = self._ask()
        except UnknownRunError as error:
            self._answered = time.monotonic()
            return Look(state="unknown", words=f"{error}; waiting for it")
        except (DaemonError, FleetError) as error:
            if self._answered is None or time.monotonic() > self._answered + _ABSENCE_SECONDS:
                raise
            return Look(state="absent", words=f"{error}; asking again")
        self._answered = time.monotonic()
        return self._judge(answer)

    def _judge(self, answer: Answer) -> Look:
        self._lived.update(run["run"] for run in answer["runs"] if lives(run))
        runs = answer["runs"]
        if self._run is None:  # what had ended before is not waited for
            runs = [run for run in runs if run["run"] in self._lived]
        if not runs:
            return Look(state="none", words="no run lives; waiting for one")
        answer = only(answer, runs)
        summary = plain(str(answer["summary"]))
        if is_reached(answer, self._goal):
            return Look(outcome=Outcome.REACHED, state="reached", words=summary)
        if is_over(answer):
            words = "; ".join(
                f"{plain(run['summary'])} ({_too_early(run, self._goal)})" for run in runs
            )
            return Look(outcome=Outcome.ENDED, state="ended", words=words)
        state = " ".join(f"{run['run']}={run['state']}" for run in runs)
        return Look(state=state, words=summary)


def _too_early(run: Answer, goal: str) -> str:
    """Why the end of a run ended the wait for ``goal`` in vain."""
    if goal != "warm":
        return f"it ended and was not seen {goal}"
    return "after it had been warm" if was_warm(run) else "before it was warm"


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, str], None]]:
    """A line that changes on a terminal; elsewhere a line whenever the state changes."""
    if sys.stderr.isatty():
        try:
            yield lambda _state, words: note(f"\r{fits(words)}\x1b[K", end="")
        finally:
            note("\r\x1b[K", end="")
        return
    told: list[str] = []

    def tell(state: str, words: str) -> None:
        if told[-1:] != [state]:
            told.append(state)
            note(words)

    yield tell
