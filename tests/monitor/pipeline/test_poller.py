"""The poller: publishes the values of the sources, and continues if one fails or hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support import builders, sources
from support.builders import EPOCH, NOW
from support.records import wait_until, write_record
from support.values import replace
from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.figures.machine import Refusal, SourceHealth
from warmwatch_monitor.model.machine import GpuReading, ProcessReading
from warmwatch_monitor.model.records import RecordReading
from warmwatch_monitor.model.snapshot import Snapshot
from warmwatch_monitor.pipeline import poller as module
from warmwatch_monitor.pipeline.poller import Poller
from warmwatch_monitor.sources.host import HostAndProcesses
from warmwatch_monitor.sources.listed import RECORDS, Read, Readings, Source, living
from warmwatch_monitor.sources.records.source import RecordsReading, RecordsSource

LIVING = RecordReading(folder="a", slot=builders.slot(), alive=True, pid=7)
FOUND = RecordsReading(records=(LIVING,), refusals=(Refusal(path="x", reason="y"),))
PROCESS = ProcessReading(pid=7, cpu_seconds=1.0, resident_bytes=2)
FIXED = Clock(monotonic_ns=lambda: NOW, epoch=lambda: EPOCH)


class Records:
    """A source that gives, raises or blocks, as ``behave`` does."""

    def __init__(self, behave: Callable[[], RecordsReading] = lambda: FOUND) -> None:
        self.behave = behave

    def read(self, _others: Readings) -> RecordsReading:
        return self.behave()


def host_source(others: Readings) -> HostAndProcesses:
    """A host with process 7, which is requested."""
    found = {pid: PROCESS for pid in living(others) if pid == 7}
    return HostAndProcesses(machine=None, processes=found)


def fail(*_: object) -> RecordsReading:
    raise OSError("the disk is gone")


def health(snapshot: Snapshot) -> dict[str, SourceHealth]:
    return {health.source: health for health in snapshot.sources}


def made(
    records: Records, host: Read[HostAndProcesses], interval: float = 0.2, **rest: Any
) -> Poller:
    values = {"interval": interval}
    return sources.poller(records=records.read, host=host, values=values, **rest)


@contextmanager
def running(poller: Poller) -> Iterator[Poller]:
    poller.start()
    try:
        yield poller
    finally:
        poller.stop()


def test_one_poll_publishes_runs_processes_refusals_and_health() -> None:
    poller = made(Records(), host_source, directories=("/d",), clock=FIXED)
    snapshot = poller.poll_once()
    assert snapshot is poller.latest()
    assert (snapshot.epoch, snapshot.now_ns, snapshot.directories) == (EPOCH, NOW, ("/d",))
    (rank,) = snapshot.runs[0].ranks
    assert (rank.reading, rank.process) == (LIVING, PROCESS)
    assert snapshot.refusals == FOUND.refusals
    assert all(h.up and h.last_success == EPOCH for h in snapshot.sources)


def test_a_command_is_awaited_until_its_first_record() -> None:
    identity = LIVING.slot.identity
    own = replace(LIVING, slot=replace(LIVING.slot, identity=replace(identity, started_by="me")))
    present: list[RecordReading] = []
    records = Records(lambda: replace(FOUND, records=tuple(present)))
    values = {"awaits": "me"}
    poller = sources.poller(records=records.read, host=host_source, values=values)

    def awaited_with(*readings: RecordReading) -> bool:
        present[:] = readings  # a slow poll reads them twice
        return poller.poll_once().awaited

    assert awaited_with()
    assert awaited_with(LIVING)
    assert not awaited_with(LIVING, own)
    assert not awaited_with(LIVING)
    assert not made(Records(), host_source).poll_once().awaited


def test_a_source_that_raises_is_down_with_a_sentence_and_its_readings_are_absent() -> None:
    records = Records()
    poller = made(records, host_source, clock=FIXED)
    poller.poll_once()
    records.behave = fail
    snapshot = poller.poll_once()
    assert snapshot.runs == ()
    down = health(snapshot)["records"]
    assert (down.up, down.error, down.last_success) == (False, "OSError: the disk is gone", EPOCH)
    assert health(snapshot)["host"].up
    records.behave = lambda: FOUND
    assert len(poller.poll_once().runs) == 1


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    """An event that is set when the test is over."""
    event = threading.Event()
    yield event
    event.set()


def test_a_host_that_hangs_does_not_stop_the_records(stuck: threading.Event) -> None:
    def hang(others: Readings) -> HostAndProcesses:
        stuck.wait()
        return host_source(others)

    records = Records()
    with running(made(records, hang, interval=0.05)) as poller:
        wait_until(lambda: poller.latest().runs)
        records.behave = RecordsReading
        wait_until(lambda: not poller.latest().runs)
        stuck.set()


@pytest.mark.slow
def test_records_that_hang_become_absent_and_snapshots_continue(stuck: threading.Event) -> None:
    """The clock advances two seconds with each Snapshot while the source hangs."""
    leap = [0]
    records, hangs = Records(), threading.Event()

    def hang() -> RecordsReading:
        hangs.set()
        stuck.wait()
        return FOUND

    clock = Clock(monotonic_ns=lambda: NOW + leap[0])
    with running(made(records, host_source, interval=0.05, clock=clock)) as poller:
        wait_until(lambda: poller.latest().runs)
        records.behave = hang
        wait_until(hangs.is_set)
        for _ in range(5):
            seen = poller.latest()
            leap[0] += 2 * 10**9
            wait_until(lambda seen=seen: poller.latest().now_ns > seen.now_ns)
        result = health(poller.latest())["records"].error
        assert result in ("no answer for 8 s", "no answer for 10 s")
        assert poller.latest().runs == ()
        stuck.set()
        wait_until(lambda: poller.latest().runs)


def test_after_a_suspension_no_earlier_reading_is_reported(
    stuck: threading.Event,
) -> None:
    """No source is reported as silent, and no rank as if it had not advanced."""
    records, stands = Records(), threading.Event()
    moved = replace(LIVING, slot=builders.slot(builders.StepCounts(steps=7)))
    published: list[Snapshot] = []

    def again() -> RecordsReading:
        stands.set()
        stuck.wait()
        return RecordsReading(records=(moved,))

    # in one moment all goes on and it is later
    clock = Clock(monotonic_ns=lambda: NOW + stuck.is_set() * 60 * 10**9)
    poller = made(records, host_source, interval=0.05, clock=clock)
    poller.follow(published.append)
    with running(poller):
        wait_until(lambda: poller.latest().runs)
        records.behave = again
        wait_until(stands.is_set)
        before = len(published)
        wait_until(lambda: len(published) > before)  # so it is not in the middle of the next one
        stuck.set()
        wait_until(lambda: published[-1].now_ns > NOW)
    now = next(one for one in published if one.now_ns > NOW)
    assert [rank.figures.steps.count for rank in now.runs[0].ranks] == [7]
    assert all(source.up for source in now.sources)


def threads_of(name: str) -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == f"warmwatch-{name}"]


def test_a_hanging_driver_is_called_once_for_any_number_of_reads(
    stuck: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A waiting command polls for hours: not one more thread may enter the driver meanwhile."""
    monkeypatch.setattr(module, "_ONCE_SECONDS", 0.2)
    calls: list[int] = []
    waited: list[float] = []
    join = threading.Thread.join

    def joined(thread: threading.Thread, timeout: float | None = None) -> None:
        if thread.name == "warmwatch-nvml":
            waited.append(timeout or 0.0)
        join(thread, timeout)

    monkeypatch.setattr(threading.Thread, "join", joined)

    def hang(_others: Readings) -> tuple[GpuReading, ...]:
        calls.append(1)
        stuck.wait()
        return (builders.gpu(),)

    poller = made(Records(), host_source, nvml=hang)
    snapshots = [poller.poll_once() for _ in range(20)]
    assert len(waited) == 20
    assert sum(waited) < 2 * 0.2, "it is waited for once, not at each question"
    assert all(len(snapshot.runs) == 1 for snapshot in snapshots)
    assert len(threads_of("nvml")) == len(calls) == 1
    poller.start()
    try:
        wait_until(lambda: poller.latest().epoch > snapshots[-1].epoch)
        assert len(calls) == 1, "nor does the daemon's own thread enter it"
        stuck.set()
        wait_until(lambda: poller.latest().gpus)
    finally:
        poller.stop()
    assert not threads_of("nvml")


def test_a_command_reads_whole_journals_in_as_many_polls_as_needed(
    tmp_path: Path,
) -> None:
    made = {"t": 5, "event": "compilation", "kind": "forward", "seconds": 1.5, "name": "f"}
    lines = [{**made, "id": f"0/{n}", "reason": "x" * 500} for n in range(1500)]
    clock = Clock(epoch=lambda: EPOCH)
    reader = RecordsSource([str(tmp_path)], retention=1e12, clock=clock, boot="here")
    for name in ("one", "other"):
        write_record(tmp_path, builders.slot(), name=name, events=lines)
    assert reader.read(0.0).unread == 1
    assert reader.read(0.0).unread_bytes > 0
    source = Source(
        name=RECORDS.name,
        interval=lambda _: 1.0,
        make=lambda _settings, _clock: lambda _: reader.read(0.0),
        unread=RECORDS.unread,
    )
    snapshot = Poller(sources.settings("/d"), sources=(source,), clock=clock).poll_once()
    views = [view for run in snapshot.runs for view in run.ranks]
    assert [view.figures.agent.incomplete_bytes for view in views] == [0] * len(views)
    costs = [view.figures.log.functions for view in views]
    assert [found and found[0].compilations for found in costs] == [1500] * len(views)
