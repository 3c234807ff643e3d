"""The journal's room: what is bounded, what is counted, and what gets its place all the same."""

from __future__ import annotations

import os
import threading
from array import array
from pathlib import Path
from types import SimpleNamespace

import pytest

from support import slots
from support.filesystems import NotHereError, mounted
from warmwatch.recorder import files as _record_files
from warmwatch.recorder import writer as _writer
from warmwatch.recorder.disk_flusher import DiskFlusher
from warmwatch.recorder.files import Files, create
from warmwatch.recorder.writer import Writer
from warmwatch.shared import record
from warmwatch.shared.record import Header, Identity
from warmwatch_monitor.model.journal import Recompile
from warmwatch_monitor.sources.records.parsed_journal import parse

HEADER = Header(warm_steps=3, attached_ns=1, attached_epoch_ns=1)
ROOM, LINES = 1000, 100


@pytest.fixture(params=["memory", "disk"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A record directory of each kind."""
    if request.param == "memory":
        return memory
    monkeypatch.setattr(_writer, "in_memory", lambda _: False)
    return tmp_path


def opened(place: Path) -> Writer:
    writer = Writer()
    writer.open([str(place)], HEADER, Identity(run="t"), named=True)
    return writer


def test_a_name_that_is_no_unicode_is_read_by_monitors(place: Path) -> None:
    writer = opened(place)
    writer.note("recompile", 1, {"name": "f", "file": "tr\udcffin\x1b.py", "reason": "größer"})
    assert writer.flush(60)
    (entry,) = (parse(line) for line in journal(place).splitlines())
    assert isinstance(entry, Recompile)
    assert (entry.file, entry.reason) == ("tr?in\\x1b.py", "größer")


def test_a_full_journal_takes_only_essential_lines(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "JOURNAL_LIMIT", ROOM)
    writer = opened(place)
    for number in range(LINES):
        writer.note("compilation", number, {"reason": "x" * 50})
    for event in ("warm", "exit"):
        writer.note(event, LINES, {}, essential=True)
    assert writer.flush(60)
    *retained, warm, exit_ = slots.events(slots.only(place))
    assert (warm["event"], exit_["event"]) == ("warm", "exit")
    assert [line["t"] for line in retained] == list(range(len(retained))), "the first ones"
    essential = sum(len(line) for line in journal(place).splitlines(True)[-2:])
    line = len(journal(place).splitlines(True)[0])
    assert ROOM - 2 * line < len(journal(place)) - essential <= ROOM
    assert writer.dropped == LINES - len(retained)
    writer.publish(array("Q", bytes(8 * record.COMPILE_WORDS)))
    assert writer.flush(60)
    assert slots.read(slots.only(place)).compile.journal_dropped == writer.dropped
    writer.close()


def journal(place: Path) -> str:
    return (slots.only(place) / record.JOURNAL).read_text()


def test_a_journal_may_use_a_64th_of_the_free_space_of_its_filesystem() -> None:
    """Records on a tmpfs use the training's memory."""
    try:
        with mounted("tmpfs") as disk:
            there = os.statvfs(disk.place)
            share = there.f_bavail * there.f_frsize // 64
            writer = opened(disk.place / "records")
            for number in range(share // 4_000 + 20):
                writer.note("compilation", number, {"reason": "x" * 4_000})
            writer.note("exit", 0, {}, essential=True)
            folder = slots.only(disk.place / "records")
            size = (folder / record.JOURNAL).stat().st_size
            assert share - 40_000 < size < share + 100
            assert slots.events(folder)[-1]["event"] == "exit"
            assert writer.dropped >= 20
            writer.close()
    except NotHereError as error:
        pytest.skip(str(error))


def test_a_filesystem_that_reports_no_size_leaves_a_journal_its_full_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = SimpleNamespace(f_blocks=0, f_bavail=0, f_frsize=4096)
    monkeypatch.setattr(_record_files.os, "fstatvfs", lambda _: unknown)
    files = create(tmp_path, bytes(record.blank()), Identity(run="t"), "owner")
    assert files.room == record.JOURNAL_LIMIT == 8 * 1024 * 1024
    os.close(files.slot)
    os.close(files.journal)
    files.cleanup_lock.release()


def test_the_queue_of_lines_for_a_disk_is_bounded_except_for_essential_ones(
    tmp_path: Path,
) -> None:
    """A disk that never answers takes only a bounded part of the training's memory."""
    answers, memory, run = threading.Event(), record.blank(), Identity(run="t")
    header = record.pack_header(HEADER)
    memory[: len(header)] = header
    record.store_identity(memory, run)

    def late() -> Files:
        assert answers.wait(600)
        return create(tmp_path, bytes(memory), run, "owner")

    copies = DiskFlusher(memory, late, made=lambda _: None, failed=print)
    for number in range(3000):
        copies.add(b'{"t":%d,"event":"step"}\n' % number, essential=False)
    copies.add(b'{"t":1,"event":"exit"}\n', essential=True)
    assert copies.dropped == 1000
    answers.set()
    assert copies.flush(60)
    reported = slots.events(slots.only(tmp_path))
    assert len(reported) == 2001
    assert (reported[1999]["t"], reported[-1]["event"]) == (1999, "exit")
    assert copies.close(60)
