"""Figures that did not change since the last poll are reused, for speed with hundreds of ranks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support import builders as b
from support.records import warm, write_record
from warmwatch.shared import record
from warmwatch_monitor.model.machine import ProcessReading
from warmwatch_monitor.pipeline import memory
from warmwatch_monitor.sources.records import folder as records_folder
from warmwatch_monitor.sources.records.folder import Folder, SlotFile, SlotReading


def test_a_slot_that_is_short_for_one_poll_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user may truncate and extend the file between the two reads of one poll."""
    file, folder = SlotFile(), write_record(tmp_path, warm())
    look(file, folder)
    image = (folder / record.SLOT).read_bytes()
    read = image[:100], image[record.HOT_END :]
    monkeypatch.setattr(records_folder, "_image", lambda _: read)
    with pytest.raises(record.RecordError, match="torn record"):
        look(file, folder)


def test_a_word_that_one_read_copied_half_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may copy it byte by byte while a step stores it."""
    file, folder = SlotFile(), write_record(tmp_path, warm())
    read, at = os.pread, record.STEPS_OFFSET + 1
    whole, torn = look(SlotFile(), folder).slot.steps, iter([b"\7"])

    def pread(descriptor: int, size: int, offset: int) -> bytes:
        image = read(descriptor, size, offset)
        half = next(torn, b"") if offset == 0 else b""
        return image[:at] + half + image[at + 1 :] if half else image

    monkeypatch.setattr(records_folder.os, "pread", pread)
    assert look(file, folder).slot.steps == whole


def test_memory_is_followed_once_for_each_reading_of_processes_and_gpus() -> None:
    process = ProcessReading(pid=1, cpu_seconds=3.0, resident_bytes=1, private_bytes=1)
    known = memory.follow(None, b.WARM, b.NOW, process, ())
    assert memory.follow(known, b.WARM, b.NOW + 2 * 10**8, process, ()) is known
    assert memory.follow(known, b.WARM, b.NOW + 10**9, process, ()) is not known


def look(file: SlotFile, folder: Path) -> SlotReading:
    with Folder(str(folder)) as opened:
        return file.read(opened)
