"""The runs of a training that a command has started."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import to_builtins
from msgspec.structs import replace

from warmwatch.shared.phrases import duration
from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.base.settings import Settings
from warmwatch_monitor.client.answers import Answer, settings_from
from warmwatch_monitor.client.history_writer import HistoryWriter
from warmwatch_monitor.client.records import make_poller
from warmwatch_monitor.model.records import RecordReading
from warmwatch_monitor.model.snapshot import Snapshot, incomplete
from warmwatch_monitor.output.console import plain
from warmwatch_monitor.sources.listed import RECORDS, Read, Readings, Source
from warmwatch_monitor.sources.records.source import RecordsReading
from warmwatch_monitor.status.document import status

_END_SECONDS = 3.0  # to wait for the ends in the records
_READ_SECONDS = 30.0  # to wait for records that cannot be read: a busy machine, a slow disk
_RETENTION_SECONDS = "86400"  # a command's first training may end long before its last
_NOTHING = (
    "no step and no compilation was seen under this command. Python with -I, -E or -S, or older "
    "than 3.10, is not attached: add `import warmwatch.auto`. A process that changed its user or "
    "emptied its environment has its record in another directory"
)


def _records_of(
    launch: str, took: Callable[[tuple[RecordReading, ...]], None]
) -> Source[RecordsReading]:
    """The source of records, restricted to one launch. ``took``: called with those of each poll."""

    def make(settings: Settings, clock: Clock) -> Read[RecordsReading]:
        read = RECORDS.make(settings, clock)

        def ours(others: Readings) -> RecordsReading:
            reading = read(others)
            of_it = (
                record for record in reading.records if record.slot.identity.started_by == launch
            )
            took(records := tuple(of_it))
            return replace(reading, records=records)

        return ours

    return replace(RECORDS, make=make)


def nothing_seen(snapshot: Snapshot) -> str:
    """Why ``snapshot``, taken after the end of a command, has no run."""
    if why := incomplete(snapshot):
        return f"what ran under this command is not known yet: {why}; ask later: warmwatch runs"
    return _NOTHING


def living(snapshot: Snapshot) -> bool:
    """Whether a rank has not ended."""
    return any(rank.living for run in snapshot.runs for rank in run.ranks)


def _process(reading: RecordReading) -> tuple[int, str, int]:
    """The process of a record; ``exec`` does not change it."""
    return reading.slot.identity.pid, *reading.start


class Launched:
    """The runs of one launch. ``launch``: its id in the records."""

    def __init__(self, launch: str) -> None:
        settings = settings_from(observe="off", retention=_RETENTION_SECONDS)
        self._records: tuple[RecordReading, ...] = ()
        self._poller, self._seen = (
            make_poller(settings, _records_of(launch, self._take)),
            HistoryWriter(settings.history),
        )
        self._began = time.monotonic()

    def sentence(self) -> str:
        answer = self.answer(self.snapshot())
        if answer["runs"]:
            return str(plain(answer["summary"]))
        return f"no step and no compilation for {duration(time.monotonic() - self._began)}"

    def poll(self) -> None:
        """Poll them: journals are read from their start, and a signal that kills one is seen."""
        self.snapshot()

    def ended(self) -> Snapshot:
        """The Snapshot after their ends, which records may show a moment late."""
        began = time.monotonic()
        while True:
            snapshot = self.snapshot()
            waited = time.monotonic() - began
            if living(snapshot):
                over = waited > _END_SECONDS
            else:
                over = waited > _READ_SECONDS or snapshot.crowded or not incomplete(snapshot)
            if over:
                return snapshot
            time.sleep(0.1)

    def snapshot(self) -> Snapshot:
        seen = self._poller.poll_once()
        self._seen.take(seen)
        return seen

    def earlier(self, snapshot: Snapshot) -> list[RecordReading]:
        """Records that compiled but are not a rank, because their process has a later record.

        The process replaced itself by ``exec``, or attached a second time under the same name.
        """
        ranks = [rank.record for run in snapshot.runs for rank in run.ranks]
        shown, processes = (
            {reading.folder for reading in ranks},
            {_process(reading) for reading in ranks},
        )
        left = (record for record in self._records if record.folder not in shown)
        return [
            reading
            for reading in left
            if _process(reading) in processes and reading.slot.compile.begun
        ]

    def _take(self, records: tuple[RecordReading, ...]) -> None:
        self._records = records

    def write_history(self) -> None:
        """Write the ended runs to the history."""
        self._seen.write()

    def answer(self, snapshot: Snapshot) -> Answer:
        """Their ``/status`` document."""
        answer: Answer = to_builtins(status(snapshot))
        return answer
