"""Runs the command of ``check`` to its end with the agent attached, and measures its runs."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from warmwatch.shared.states import State
from warmwatch_monitor.commands.check import measured as gate
from warmwatch_monitor.commands.check.wording import caches_left, restarted, uncompiled, unfinished
from warmwatch_monitor.commands.launch import (
    Caches,
    end_as,
    environment,
    fresh_caches,
    startable,
    supervise,
)
from warmwatch_monitor.commands.launched import Launched, living, nothing_seen
from warmwatch_monitor.output.console import note
from warmwatch_monitor.sources.records.parsed_journal import parse_journal
from warmwatch_monitor.status.words.run import run_answer

if TYPE_CHECKING:
    from warmwatch_monitor.commands.check.measured import MeasuredRun
    from warmwatch_monitor.model import RecordReading, RunView, Snapshot

FAILED, NOT_SEEN = 4, 5
_BY_SIGNAL = 128  # offset of exit codes for signals, as in shells
_STOPS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
_PAUSE_SECONDS = 0.5


class CannotCompareError(Exception):
    """The runs cannot be compared; ``code``: the exit code of ``check``."""

    def __init__(self, words: str, code: int) -> None:
        super().__init__(words)
        self.code = code


def measured(
    command: Sequence[str], *, name: str | None, keep_caches: bool
) -> tuple[MeasuredRun, ...]:
    """Run ``command`` and return what its runs compiled.

    If a signal killed it, this process ends by the same signal. Raises CannotCompareError.
    """
    launch = uuid.uuid4().hex
    ours, received = Launched(launch), list[int]()
    with fresh_caches(keep=keep_caches, used=lambda: living(ours.snapshot())) as caches:
        environ = environment({**os.environ, **caches.environ}, run=name, started_by=launch)
        status = _attend(tuple(command), environ, ours, received)
        snapshot = ours.ended()  # processes that outlive the command still use its caches
    left = _left(caches)
    if os.WIFSIGNALED(status):
        if left:
            note(f"warmwatch check: {left}")
        end_as(status)
    try:
        _not_interrupted(received)
        _sound(snapshot, os.waitstatus_to_exitcode(status), command)
        _all_there(ours.earlier(snapshot))
    except CannotCompareError as error:
        raise CannotCompareError("; ".join(filter(None, (str(error), left))), error.code) from None
    folders = (rank.record.folder for run in snapshot.runs for rank in run.ranks)
    return gate.measured(snapshot.runs, {folder: parse_journal(folder) for folder in folders})


def _attend(
    command: tuple[str, ...], environ: Mapping[str, str], ours: Launched, received: list[int]
) -> int:
    """Run it to its end; its wait status."""
    with startable(command):
        return supervise(
            command,
            environ,
            poll=ours.poll,
            stopped=lambda: None,
            received=received.append,
            seconds=_PAUSE_SECONDS,
        )


def _left(caches: Caches) -> str:
    """The message that caches were left for processes that still run; empty if removed."""
    return caches_left(caches.folder) if caches.folder and Path(caches.folder).exists() else ""


def _not_interrupted(received: Sequence[int]) -> None:
    """Raises CannotCompareError if a signal ended it early, even if it exited with 0."""
    stops = [number for number in received if number in _STOPS]
    if stops:
        raise CannotCompareError(
            f"it was ended by {signal.Signals(stops[0]).name}, so nothing was compared",
            _BY_SIGNAL + stops[0],
        )


def _sound(snapshot: Snapshot, code: int, command: Sequence[str]) -> None:
    """Raises CannotCompareError unless all runs are complete, and one compiled something."""
    if code:
        raise CannotCompareError(
            f"{command[0]} failed with exit code {code}, so nothing was compared", FAILED
        )
    if not snapshot.runs:
        raise CannotCompareError(nothing_seen(snapshot), NOT_SEEN)
    for run in snapshot.runs:
        if _broken(run):
            raise CannotCompareError(f"{run_answer(run).summary}: nothing was compared", FAILED)
        if goes_on := [rank.rank for rank in run.ranks if rank.living]:
            raise CannotCompareError(unfinished(run, goes_on), NOT_SEEN)
    if not any(rank.figures.compile.begun for run in snapshot.runs for rank in run.ranks):
        raise CannotCompareError(uncompiled(snapshot.runs[0]), NOT_SEEN)


def _all_there(earlier: Sequence[RecordReading]) -> None:
    """Raises CannotCompareError if a record compiled something that no rank's numbers include."""
    if earlier:
        raise CannotCompareError(restarted(earlier[0].slot.identity.run), NOT_SEEN)


def _broken(run: RunView) -> bool:
    return any(rank.judgement.state in (State.FAILED, State.LOST) for rank in run.ranks)
