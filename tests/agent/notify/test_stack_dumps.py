"""Stacks of a long activity: when they are written, which parts of a frame, and how many."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic_ns

import pytest

from support.records import wait_until
from warmwatch import _guard
from warmwatch.notify.stack_dumps import StackWriter
from warmwatch.process.settings import settings_from
from warmwatch.process.threads import ActivityWatch, Alarm
from warmwatch.recorder.descriptors import opened_high
from warmwatch.shared.record import STACKS
from warmwatch.shared.record.stack_file import Stacks, unpack_stacks

SECOND = 10**9


@pytest.fixture(name="reported")
def _reported() -> Iterator[list[str]]:
    """Errors of the agent's own."""
    reported: list[str] = []
    _guard.connect(lambda where, error: reported.append(f"{where}: {error!r}"))
    yield reported
    _guard.connect(None)


class Watched:
    """A watch over an activity that a test begins and ends."""

    def __init__(self, folder: Path | None, after: float | None = 0.01) -> None:
        self.since, self.folder = 0, folder
        self.polled = 0
        stacks = StackWriter(
            phase=self.phase,
            threads=lambda: (threading.get_ident(), threading.main_thread().ident or 0),
            opened=self.opened,
        )
        alarms = [Alarm(after=after, act=stacks.write, again=True)] if after else []
        self.watch = ActivityWatch(lambda: self.since, alarms)

    def opened(self, flags: int) -> int | None:
        return opened_high(self.folder / STACKS, flags, 0o600) if self.folder else None

    def phase(self) -> int:
        """Called at each poll."""
        self.polled += 1
        return 3

    def begin(self) -> None:
        self.since = monotonic_ns()
        self.watch.begun()

    def end(self) -> None:
        self.since = 0

    @property
    def watches(self) -> bool:
        return self.watch.runs

    def dumps(self) -> list[Stacks]:
        """Those that are whole: one may be on its way into the file."""
        assert self.folder
        file = self.folder / STACKS
        whole, _, _ = (file.read_bytes() if file.exists() else b"").rpartition(b"\n")
        return list(map(unpack_stacks, whole.splitlines()))


@contextmanager
def watched(folder: Path | None, after: float | None = 0.01) -> Iterator[Watched]:
    one = Watched(folder, after)
    yield one
    one.end()
    one.watch.stop()
    wait_until(lambda: not one.watches)


def test_stacks_of_a_long_activity_are_written_at_growing_intervals(tmp_path: Path) -> None:
    with watched(tmp_path) as one:
        one.begin()
        wait_until(lambda: len(one.dumps()) > 3)
        dumps = one.dumps()
    ages = [dump.at_ns - dump.since_ns for dump in dumps]
    assert ages[0] >= SECOND // 100
    assert all(later >= 2 * sooner for sooner, later in itertools.pairwise(ages))
    thread = dumps[0].threads[0]
    assert (dumps[0].phase, thread.main, thread.compiles) == ("inductor", True, True)
    assert Path(__file__).name in {frame.file for frame in thread.frames}
    # of the watching thread; the compiling one may still be returning from `begun`
    assert not any(
        f.file in ("stack_dumps.py", "threads.py") and not f.name.endswith(("begun", "start"))
        for dump in dumps
        for t in dump.threads
        for f in t.frames
    )


@pytest.mark.parametrize("after", [None, 0.01])
def test_no_stacks_are_written_if_disabled_or_without_a_record(after: float | None) -> None:
    with watched(None, after) as one:
        one.begin()
        assert one.watches is (after is not None)


@pytest.mark.parametrize("what", ["fifo", "fifo that is read", "link", "directory"])
def test_another_file_in_its_place_neither_blocks_nor_is_followed(
    tmp_path: Path, reported: list[str], what: str
) -> None:
    place, other = tmp_path / STACKS, tmp_path / "other"
    other.write_text("another's")
    reader = None
    if what.startswith("fifo"):
        os.mkfifo(place)
        reader = os.open(place, os.O_RDONLY | os.O_NONBLOCK) if "read" in what else None
    elif what == "link":
        place.symlink_to(other)
    else:
        place.mkdir()
    try:
        with watched(tmp_path) as one:
            one.begin()
            wait_until(lambda: one.polled > 3)
    finally:
        if reader is not None:
            os.close(reader)
    assert other.read_text() == "another's"
    assert reported == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", 60.0), ("5", 5.0), ("0.2", 0.2), ("off", None), ("0", None), ("OFF", None)],
)
def test_the_limit_is_a_setting(text: str, seconds: float | None) -> None:
    found = settings_from({"WARMWATCH_STACKS": text})
    assert (found.stacks, found.complaints) == (seconds, ())


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "1e9", "0.001"])
def test_an_invalid_limit_is_reported_and_the_default_applies(text: str) -> None:
    found = settings_from({"WARMWATCH_STACKS": text})
    assert found.stacks == 60.0
    (complaint,) = found.complaints
    assert complaint.startswith(f"WARMWATCH_STACKS={text!r} is neither off nor a number of seconds")
