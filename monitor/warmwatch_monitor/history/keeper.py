"""Writes runs to the history: the daemon's keeper, and ``write_ended`` for commands.

The daemon writes a run when it ends, each living run once a minute, and all at shutdown.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from contextlib import suppress

from msgspec import Struct

from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.base.errors import RefusedRunsError, SourceError, StoreError
from warmwatch_monitor.base.settings import HistorySettings
from warmwatch_monitor.history.store import Store
from warmwatch_monitor.history.summaries import id_of, summarize_run
from warmwatch_monitor.history.traces import Traces
from warmwatch_monitor.last_hour.ring import LastHour
from warmwatch_monitor.model.budgets import HISTORY_SECONDS, HISTORY_SHARE
from warmwatch_monitor.model.run_summary import RunSummary
from warmwatch_monitor.model.snapshot import RunView, Snapshot
from warmwatch_monitor.sources.listed import Source, polled
from warmwatch_monitor.sources.records.parsed_journal import Journals

_TIMEOUT_SECONDS = 0.5  # a user waits for the command


def write_ended(ended: Iterable[tuple[RunView, Snapshot]], settings: HistorySettings) -> None:
    """Write the ``ended`` runs whose end is not in the history. Raises StoreError."""
    store = Store(settings, patience=_TIMEOUT_SECONDS)
    if store.is_read_only:  # its daemon writes the runs
        return
    by_id = {id_of(run): (run, snapshot) for run, snapshot in ended}
    names = store.ended(by_id)
    new = [summarize_run(*seen) for id, seen in by_id.items() if id not in names]
    if new:
        store.save(new)


SOURCE = "history"
POLL_SECONDS = 1.0
_LIVING_SECONDS = 60.0
_RETRY_SECONDS = 5.0
_STOP_SECONDS = 3.0


class _Written(Struct, frozen=True):
    """When a run was last written, on the monotonic clock, and what was known of it."""

    at: float
    known: Hashable


class Keeper:
    """Writes the daemon's runs to ``store``. ``hour``: where the samples come from.

    Runs are made and written one by one, the one written longest ago first, within a budget of CPU
    time: journals can take minutes, and more memory than the machine has.
    """

    def __init__(self, store: Store, hour: LastHour, clock: Clock | None = None) -> None:
        self._store, self._clock = store, clock or Clock()
        self._latest: Snapshot | None = None
        self._written: dict[str, _Written] = {}
        self._journals = Journals()
        self._traces = Traces(store, hour)
        self._problem: str | None = None
        self._tried = False
        self._failed = float("-inf")
        self._rests_until = float("-inf")
        self._lock = threading.Lock()

    @property
    def source(self) -> Source[None]:
        """Its entry in the list of sources: its failures show as a source's health."""
        return polled(SOURCE, POLL_SECONDS, self.write_due)

    def take(self, snapshot: Snapshot) -> None:
        """Set the latest Snapshot. Called on the publisher's thread."""
        self._latest = snapshot

    def write_due(self) -> None:
        """Write the runs that are due. Raises SourceError while the history cannot be written."""
        with self._lock:
            snapshot, now = self._latest, self._now()
            if now - self._failed >= _RETRY_SECONDS and now >= self._rests_until:
                runs = () if snapshot is None else snapshot.starts
                due = [run for run in runs if self._is_due(run, now)]
                self._write(snapshot, due, HISTORY_SECONDS)
            if self._problem is not None:
                raise SourceError(self._problem)

    def finish(self) -> None:
        """Write all runs at shutdown, with a timeout for a disk that hangs."""
        thread = threading.Thread(target=self._write_all, name="warmwatch-history", daemon=True)
        thread.start()
        thread.join(_STOP_SECONDS)

    def _write_all(self) -> None:
        with self._lock:
            if (snapshot := self._latest) is not None:
                now = self._now()
                due = [run for run in snapshot.starts if run.living or self._is_due(run, now)]
                self._write(snapshot, due)

    def _is_due(self, run: RunView, now: float) -> bool:
        before = self._written.get(id_of(run))
        if before is None or before.known != _known(run):
            return True
        return bool(run.living) and now - before.at >= _LIVING_SECONDS

    def _write(
        self, snapshot: Snapshot | None, due: list[RunView], within: float = float("inf")
    ) -> None:
        """Write ``due`` until ``within`` seconds of CPU time were spent.

        The first call writes even an empty list, to report problems early.
        """
        if self._tried and not due and self._problem is None:
            return
        self._tried = True
        refused: frozenset[str] = frozenset()
        began, done = time.thread_time(), list[RunView]()

        def summaries(snapshot: Snapshot) -> Iterator[RunSummary]:
            for run in sorted(due, key=self._written_at):
                if done and time.thread_time() - began > within:
                    return
                done.append(run)
                yield self._summary_of(run, snapshot)

        made = iter(()) if snapshot is None else summaries(snapshot)
        try:
            self._store.save(made)
            self._problem, self._failed = None, float("-inf")
        except StoreError as error:
            self._problem, self._failed = str(error), self._now()
            if not isinstance(error, RefusedRunsError):
                with suppress(StoreError):
                    deque(made, maxlen=0)  # their traces go on meanwhile
                return
            refused = error.ids
        finally:
            if snapshot is not None:
                self._forget(snapshot)
        now = self._now()
        if len(done) < len(due):
            self._rests_until = now + (time.thread_time() - began) / HISTORY_SHARE
        for run in done:
            if (id := id_of(run)) not in refused:  # only refused runs are retried
                self._written[id] = _Written(now, _known(run))

    def _written_at(self, run: RunView) -> float:
        before = self._written.get(id_of(run))
        return float("-inf") if before is None else before.at

    def _summary_of(self, run: RunView, snapshot: Snapshot) -> RunSummary:
        samples, gpus = self._traces.of(run, snapshot.epoch)
        return summarize_run(
            run, snapshot, read=self._journals.of, samples=samples, gpu_samples=gpus
        )

    def _forget(self, snapshot: Snapshot) -> None:
        """Drop the state of runs that are not visible any more."""
        runs = snapshot.starts
        there = {id_of(run) for run in runs}
        self._written = {id: written for id, written in self._written.items() if id in there}
        self._traces.forget_others(there)
        self._journals.forget_others({view.record.folder for run in runs for view in run.ranks})

    def _now(self) -> float:
        return self._clock.monotonic_ns() / 1e9


def _known(run: RunView) -> Hashable:
    """What is written as soon as it changes: its end, which may arrive in parts, and builds that a
    restarted daemon cannot see any more."""
    if run.living:
        return sum(view.record.outside.ended for view in run.ranks if view.record.outside)
    return tuple(
        (view.judgement.state, view.figures.life.exit_code, view.oom_killed) for view in run.ranks
    )
