"""``warmwatch wait``: blocks until a state is reached, and reports progress."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple

import click

from warmwatch.shared.phrases import duration
from warmwatch.shared.states import State
from warmwatch_monitor.base.errors import (
    DaemonError,
    FleetError,
    UnknownRunError,
    UnreadRunError,
    UsageError,
)
from warmwatch_monitor.base.settings import load_history_settings
from warmwatch_monitor.client.answers import (
    STARTED,
    Answer,
    answer_source,
    is_starting,
    note_missing_directory,
)
from warmwatch_monitor.client.choice import is_own, only, why_incomplete
from warmwatch_monitor.client.completion import goal_names, run_names
from warmwatch_monitor.client.history_writer import HistoryWriter
from warmwatch_monitor.output import options
from warmwatch_monitor.output.amounts import few
from warmwatch_monitor.output.console import note, plain, reader_left, rewrite, say
from warmwatch_monitor.status.goals import (
    END_GOALS,
    GOALS,
    SETTLED,
    attached_at,
    is_about,
    is_at_work,
    is_over,
    is_reached,
    lives,
    may_never_end,
    was_warm,
)

_NO_READER = 141  # as a shell has it, for SIGPIPE
_HELP = """Block until RUN (or each of your living runs) is warm. RUN may start later than the wait.

RUN is a name or a pattern such as 'gpt*', among your own runs. A run that ended before the wait
began is skipped, because it is not the one that you launch. Without --timeout, a run that is not
there has 10 min to appear. stderr shows the progress.

\b
Exit code: 0 reached; 4 it ended first, or may hang; 5 no run appeared; 6 no answer; 124 timeout
"""


@click.command(help=_HELP)
@click.argument("run", required=False, shell_complete=run_names)
@click.option(
    "--until",
    metavar="STATE[,STATE]",
    shell_complete=goal_names,
    default="warm",
    help=f"{', '.join(State)}; settled (warm, and its speed no longer changes); or ended (any "
    "end). An interrupted run is finished. With several, whichever comes first.  [warm]",
)
@click.option(
    "--timeout",
    metavar="S",
    type=options.Number(min=0),
    help="Give up after S seconds.  [never, once a run appeared]",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the last answer as JSON, also on failure."
)
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
    timeout: float | None,
    as_json: bool,
    address: str | None,
    dir: str | None,
    prometheus: str | None,
    **access: str | None,
) -> None:
    goals = _goals(until)
    end = time.monotonic() + (math.inf if timeout is None else timeout)
    seen = HistoryWriter(load_history_settings(os.environ))
    query = answer_source(
        run,
        address=address,
        dir=dir,
        prometheus=prometheus,
        access=access,
        own=True,
        on_read=seen.take,
        until=end,
    )
    uid, clock = (os.geteuid(), None) if prometheus is None else (None, time.time)
    note_missing_directory(dir, " yet; waiting for it")

    def goes_on(state: str, words: str) -> None:
        if reader_left():  # nobody will read the answer
            ctx.exit(_NO_READER)
        report(state, words)

    with _progress() as report:
        new_start = NEW_START_SECONDS if timeout is None else math.inf
        appears = APPEARS_SECONDS if timeout is None else math.inf
        starting = is_starting if address is None and prometheus is None else (lambda _: False)
        wanted = Wait(query, run, goals, goes_on, uid, clock, new_start, appears, starting)
        last = wanted.block(max(0.0, end - time.monotonic()))
    seen.write()  # without a daemon, only this command saw the signal that ended a run
    _report(last, f"not {listed(goals)} after {timeout or 0:g} s: ", as_json=as_json)
    assert last.outcome is not None
    ctx.exit(last.outcome.value)


def _goals(until: str) -> tuple[str, ...]:
    goals = tuple(dict.fromkeys(goal.strip() for goal in until.split(",")))
    for goal in goals:
        if goal not in GOALS:
            raise UsageError(f"--until: {goal!r} is not a state. States: {', '.join(GOALS)}")
    return goals


def _report(last: WaitState, late: str, *, as_json: bool) -> None:
    """The sentence; with ``as_json`` the answer alone has stdout, and there may be none."""
    if as_json and last.answer is not None:
        say(json.dumps(last.answer, indent=2))
    if last.outcome is not Outcome.REACHED:
        note(f"{late if last.outcome is Outcome.TIMEOUT else ''}{last.words}")
    elif not as_json:
        say(last.words)


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, str], None]]:
    """A line that changes on a terminal; elsewhere a line whenever the state changes."""
    if sys.stderr.isatty():
        began = time.monotonic()
        try:
            yield lambda _state, words: rewrite(f"{duration(time.monotonic() - began)}: {words}")
        finally:
            rewrite("")
        return
    printed: list[str] = []

    def report(state: str, words: str) -> None:
        if printed[-1:] != [state]:
            printed.append(state)
            note(words)

    yield report


# between two polls, longer the longer the wait: a twentieth of it; any other state may pass between
_SHORTEST_PAUSE, _LONGEST_PAUSE, _PAUSE_RATIO = 0.25, 2.0, 0.05
_LASTING = END_GOALS | {State.WARM.value, SETTLED}
_NAMED = 3
_ABSENCE_SECONDS = 15.0  # enough for a restart of the daemon
NEW_START_SECONDS = 30.0  # enough for a launched process to attach
APPEARS_SECONDS = 600.0  # longer than a launch takes; a mistyped name must not block for ever
_BROKEN_OFF = {State.FAILED.value, State.LOST.value}


class Outcome(Enum):
    """How a wait ends; the value is the exit code."""

    REACHED = 0
    ENDED = 4
    NO_RUN = 5
    UNREAD = 6
    TIMEOUT = 124


class WaitState(NamedTuple):
    """The state of the wait after one poll.

    Attributes:
        outcome: how the wait ends; ``None`` if it goes on. state: of the runs, to detect changes.
        words: the sentence to show. late: the sentence at the timeout.
        answer: the runs of the sentence; ``None`` if there are none.
        unread: whether the run may be among records that have not been read.
    """

    state: str
    words: str
    outcome: Outcome | None = None
    late: str = ""
    answer: Answer | None = None
    unread: bool = False


class Wait:
    """Waits for one of ``goals`` by polling.

    Args:
        run: a run's name or a pattern; without it the living runs of ``uid``.
        report: takes the state and the sentence of each poll that does not end the wait.
        uid: the waiting user; ``None``: all runs count.
        clock: the server's time, if the answers do not contain it.
        new_start: seconds to wait for a named run to start again if it has failed or is lost.
        appears: seconds to wait for a run that is not there.
        is_starting: whether a process of that run has started and has no record yet.
    """

    def __init__(
        self,
        query: Callable[[], Answer],
        run: str | None,
        goals: Sequence[str],
        report: Callable[[str, str], None],
        uid: int | None = None,
        clock: Callable[[], float] | None = None,
        new_start: float = math.inf,
        appears: float = math.inf,
        is_starting: Callable[[Answer], bool] = lambda _: False,
    ) -> None:
        self._query, self._run, self._goals, self._uid = query, run, goals, uid
        self._report, self._clock = report, clock
        self._new_start, self._appears = new_start, appears
        self._is_starting, self._seen_starting = is_starting, 0.0
        self._ends = END_GOALS.issuperset(goals)  # only an end ends the wait
        self._longest_pause = _LONGEST_PAUSE if _LASTING.issuperset(goals) else _SHORTEST_PAUSE
        self._seen_alive: set[str] = set()
        self._first_poll: float | None = None
        self._missing_since: float | None = None
        self._began: float | None = None  # the same by the server's clock, once known
        self._has_answered, self._absent_since = False, 0.0

    def block(self, patience: float) -> WaitState:
        """The poll that ended the wait, or the last one at the timeout."""
        began = time.monotonic()
        deadline = began + patience
        while True:
            polled = self._poll()
            if polled.outcome is not None:
                return polled
            now = time.monotonic()
            left = deadline - now
            if left <= 0:
                return polled._replace(outcome=Outcome.TIMEOUT, words=polled.late or polled.words)
            self._report(polled.state, polled.words)
            may_appear = self._appears - self._missed()
            pause = min(self._longest_pause, max(_SHORTEST_PAUSE, _PAUSE_RATIO * (now - began)))
            time.sleep(min(pause, left, may_appear if may_appear > 0 else left))

    def _poll(self) -> WaitState:
        """Raises DaemonError, FleetError: the server never answered, or has not for long."""
        began = time.monotonic()
        if self._first_poll is None:
            self._first_poll = began
        polled = self._query_once(began)
        if polled.outcome is not None or not polled.late:
            self._missing_since = None
            return polled
        self._missing_since = self._missing_since or began
        if self._missed() < self._appears:
            return polled
        late = f"{polled.late}; waited {duration(self._appears)} (--timeout S waits longer)"
        outcome = Outcome.UNREAD if polled.unread else Outcome.NO_RUN
        return polled._replace(outcome=outcome, words=late)

    def _missed(self) -> float:
        """For how many seconds no requested run has been there."""
        return 0.0 if self._missing_since is None else time.monotonic() - self._missing_since

    def _query_once(self, began: float) -> WaitState:
        assert self._first_poll is not None
        try:
            answer = self._query()
        except UnknownRunError as error:
            self._has_answered, self._absent_since = True, 0.0
            reason = plain(str(error))
            text = f"{reason}; waiting for it{_at_most(self._appears)}"
            unread = isinstance(error, UnreadRunError)
            return WaitState(state="unknown", words=text, late=reason, unread=unread)
        except (DaemonError, FleetError) as error:
            self._absent_since = self._absent_since or began
            if not self._has_answered or time.monotonic() > self._absent_since + _ABSENCE_SECONDS:
                raise
            return WaitState(state="absent", words=plain(f"{error}; retrying"))
        self._has_answered, self._absent_since = True, 0.0
        self._note_when(answer.get("at"), began - self._first_poll)
        return self._judge(answer)

    def _judge(self, answer: Answer) -> WaitState:
        requested = [r for r in answer["runs"] if self._run is not None or is_own(r, self._uid)]
        runs = [run for run in requested if self._is_about(run)]
        if not runs:
            return self._without_runs(answer, requested)
        answer = only(answer, runs)
        outcome, text = self._ended(answer)
        state = " ".join(f"{run['run']}={run['state']}" for run in runs)
        return WaitState(state=state, words=text, outcome=outcome, answer=answer)

    def _without_runs(self, answer: Answer, requested: Sequence[Answer]) -> WaitState:
        """None of the runs in the ``requested`` answers counts."""
        before = "; ".join(plain(str(run["summary"])) for run in requested)
        if self._run is not None and any(map(self._is_starting, requested)):
            self._seen_starting = time.monotonic()
            return WaitState(state="starting", words=f"{before}; {STARTED}")
        waited = time.monotonic() - max(self._first_poll or 0.0, self._seen_starting)
        why, limit = why_incomplete(answer, self._uid), self._appears
        if why:
            late, awaited = plain(why), self._run or "a run"
        elif self._broke_off(requested) and waited >= self._new_start:
            return WaitState(
                state="none",
                words=f"{before}; not started again within {duration(self._new_start)}",
                outcome=Outcome.ENDED,
                answer=only(answer, requested),
            )
        else:
            late, awaited = self._nothing(before, answer["runs"])
            limit = self._new_start if self._broke_off(requested) else self._appears
        text = f"{late}; waiting for {awaited}{_at_most(limit)}"
        return WaitState(state="none", words=text, late=late, unread=bool(why))

    def _broke_off(self, requested: Sequence[Answer]) -> bool:
        """Whether the named run failed or was lost, so that it may start again soon."""
        states = {run["state"] for run in requested}
        return self._run is not None and bool(states) and states <= _BROKEN_OFF

    def _ended(self, answer: Answer) -> tuple[Outcome | None, str]:
        """How ``answer`` ends the wait, if it does, and the sentence for it."""
        summary, runs = plain(str(answer["summary"])), answer["runs"]
        if any(is_reached(answer, goal) for goal in self._goals):
            return Outcome.REACHED, summary
        if is_over(answer):
            sentences = (
                f"{plain(run['summary'])} ({_too_early(run, self._goals)})" for run in runs
            )
            return Outcome.ENDED, "; ".join(sentences)
        if END_GOALS.isdisjoint(self._goals) and any(map(may_never_end, runs)):
            return Outcome.ENDED, f"{summary} (it may never be {listed(self._goals)})"
        return None, summary

    def _note_when(self, at: float | None, after: float) -> None:
        """Record when the wait began, by an answer of time ``at``, ``after`` the first poll.

        The first poll may have had no answer, or one without a time.
        """
        if at is None and self._clock is not None:
            at = self._clock()
        if at is not None and self._began is None:
            self._began = at - after

    def _is_about(self, run: Answer) -> bool:
        if is_at_work(run):
            self._seen_alive.add(run["run"])
        return is_about(
            ends=self._run is not None and self._ends,
            attached_at=attached_at(run),
            began=self._began,
            lived=run["run"] in self._seen_alive,
        )

    def _nothing(self, before: str, groups: Sequence[Answer]) -> tuple[str, str]:
        """That no run counts, and what is awaited; ``before``: the runs that ended before."""
        if self._run is not None:
            return f"{before}; that was before this wait", "it to start again"
        others = [plain(run["run"]) for run in groups if lives(run) and not is_own(run, self._uid)]
        if not others:
            return "no run is alive", "one"
        named = few(others, _NAMED)
        return f"no run of yours is alive (but another user's: {named})", "one"


def _at_most(limit: float) -> str:
    return "" if limit == math.inf else f", at most {duration(limit)}"


def listed(goals: Sequence[str]) -> str:
    """``warm``, ``warm or failed``."""
    return " or ".join(goals)


def _too_early(run: Answer, goals: Sequence[str]) -> str:
    """Why the end of a run ended the wait for ``goals`` without success."""
    if list(goals) != ["warm"]:
        return f"it ended and was never seen {listed(goals)}"
    if not was_warm(run):
        return "before it was warm"
    warmups = [rank["warmup"] for rank in run["ranks"]]
    eager = not any(warmup["ended"] or warmup["count"] for warmup in warmups)
    return "after it had run eagerly" if eager else "after it had been warm"
