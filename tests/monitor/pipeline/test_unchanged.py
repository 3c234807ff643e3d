"""Figures that did not change since the last poll are reused, for speed with hundreds of ranks."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from support import builders as b
from support.records import update, warm, write_record
from support.values import replace
from warmwatch.shared import record
from warmwatch.shared.record import recent_lengths, sealed_blocks
from warmwatch_monitor.model import Log, ProcessReading
from warmwatch_monitor.pipeline import memory, slowdown
from warmwatch_monitor.pipeline.clean_steps import QueuedSteps
from warmwatch_monitor.pipeline.energy import EnergyUsed, updated
from warmwatch_monitor.pipeline.figures import cached_figures
from warmwatch_monitor.pipeline.judging import Work, follow_work
from warmwatch_monitor.sources.records import folder as records_folder
from warmwatch_monitor.sources.records.folder import Folder, SlotFile, SlotReading
from warmwatch_monitor.sources.records.source import RecordsSource


def test_a_poll_with_only_changed_counters_parses_no_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_record(tmp_path, warm())
    file = SlotFile()
    before = look(file, folder).slot
    with (folder / record.SLOT).open("r+b") as opened:
        opened.seek(record.STEPS_OFFSET)
        opened.write((before.steps.steps + 1).to_bytes(8, "little"))
    monkeypatch.setattr(sealed_blocks, "_candidates", _never)
    after = look(file, folder)
    assert after.moved
    assert after.slot.steps.steps == before.steps.steps + 1
    assert after.slot.compile is before.compile
    assert after.slot.identity is before.identity


def test_a_poll_with_a_changed_block_parses_it(tmp_path: Path) -> None:
    folder = write_record(tmp_path, warm())
    file = SlotFile()
    before = look(file, folder).slot
    update(folder, replace(before, identity=replace(before.identity, gpus=("GPU-1",))))
    after = look(file, folder)
    assert after.moved
    assert after.slot.identity.gpus == ("GPU-1",)


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


def test_without_new_energy_or_observed_work_the_summary_is_the_same_object() -> None:
    account, work = EnergyUsed(), Work(cpu_seconds=3.0, measured=True)
    idle = ProcessReading(pid=1, cpu_seconds=3.0, resident_bytes=1, cpu_ratio=0.0, workers_busy=0)
    assert updated(account, b.view(b.WARM), b.NOW) is account
    assert follow_work(work, idle, (), b.NOW, uses_gpus=False) is work


def test_memory_is_followed_once_for_each_reading_of_processes_and_gpus() -> None:
    process = ProcessReading(pid=1, cpu_seconds=3.0, resident_bytes=1, private_bytes=1)
    known = memory.follow(None, b.WARM, b.NOW, process, ())
    assert memory.follow(known, b.WARM, b.NOW + 2 * 10**8, process, ()) is known
    assert memory.follow(known, b.WARM, b.NOW + 10**9, process, ()) is not known


def test_the_speed_is_followed_once_for_each_two_seconds_or_sixteen_steps() -> None:
    record = b.GrowingRecord()
    record.mark(0.1)
    known = slowdown.follow(None, record.slot())
    for _ in range(15):
        record.mark(0.1)
        assert slowdown.follow(known, record.slot()) is known
    record.mark(0.1)
    assert (known := slowdown.follow(known, record.slot())).count == 17
    for _ in range(2):
        record.mark(0.1)
        assert slowdown.follow(known, record.slot()) is known
    record.mark(0.1)
    assert len(slowdown.follow(known, record.slot()).blocks) == 1, "it is complete"


def test_steps_that_a_gpu_queues_are_measured_once_a_second_after_the_first_ones() -> None:
    record = b.GrowingRecord()
    on_gpu = replace(b.WARM, identity=replace(b.WARM.identity, gpus=("GPU-1",)))
    measured = []
    known: QueuedSteps | None = None
    for _ in range(300):
        record.mark(0.1)
        slot = record.slot(on_gpu)
        known = QueuedSteps.follow(known, slot, recent_lengths(slot.recent))
        assert known
        measured.append(known.slot is slot)
    assert all(measured[:200])
    assert sum(measured[-90:]) == 10


def test_the_log_of_a_journal_is_cached_until_the_journal_grows(
    tmp_path: Path,
) -> None:
    """A rank that compiled steps hundreds of times between two lines of its journal."""
    reported = {"event": "compilation", "t": 5, "id": "0/1", "kind": "forward", "seconds": 1.5}
    folder = write_record(
        tmp_path, warm(), events=[reported, {"event": "fallback", "t": 6, "steps": 1}]
    )
    source = RecordsSource([str(tmp_path)], retention=900)

    def log() -> Log:
        (reading,) = source.read().records
        return cached_figures(reading).log

    def step(steps: int) -> None:
        with (folder / record.SLOT).open("r+b") as opened:
            opened.seek(record.STEPS_OFFSET)
            opened.write(steps.to_bytes(8, "little"))

    before = log()
    assert (len(before.compilations), len(before.fallbacks)) == (1, 1)
    step(10)
    assert log() is before
    with (folder / record.JOURNAL).open("a") as journal:
        journal.write(json.dumps(reported | {"id": "0/2"}) + "\n")
    assert [one.id for one in log().compilations] == ["0/1", "0/2"]


def look(file: SlotFile, folder: Path) -> SlotReading:
    with Folder(str(folder)) as opened:
        return file.read(opened)


def _never(*_: object) -> None:
    raise AssertionError("a block was looked for that cannot have changed")
