"""What has not changed since the last look is not made anew, for hundreds of ranks move."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support import builders as b
from support.records import update, warm, write_record
from warmwatch import record
from warmwatch.record import seal
from warmwatch_monitor.sources.folder import Folder
from warmwatch_monitor.sources.slot import Look, SlotFile
from warmwatch_monitor.spending import Account, fold
from warmwatch_monitor.work import Work, follow


def test_a_look_at_which_only_words_moved_unseals_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_record(tmp_path, warm())
    file = SlotFile()
    before = look(file, folder).slot
    with (folder / record.SLOT).open("r+b") as opened:
        opened.seek(record.STEPS_OFFSET)
        opened.write((before.steps.steps + 1).to_bytes(8, "little"))
    monkeypatch.setattr(seal, "_candidates", _never)
    after = look(file, folder)
    assert after.moved
    assert after.slot.steps.steps == before.steps.steps + 1
    assert after.slot.compile is before.compile
    assert after.slot.identity is before.identity


def test_a_look_at_which_a_block_changed_reads_it(tmp_path: Path) -> None:
    folder = write_record(tmp_path, warm())
    file = SlotFile()
    before = look(file, folder).slot
    update(folder, replace(before, identity=replace(before.identity, gpus=("GPU-1",))))
    after = look(file, folder)
    assert after.moved
    assert after.slot.identity.gpus == ("GPU-1",)


def test_an_account_without_new_energy_and_work_that_nobody_saw_stay_the_same() -> None:
    account, work = Account(), Work()
    assert fold(account, b.view(b.WARM), b.NOW) is account
    assert follow(work, None, (), b.NOW, uses_gpus=False) is work


def look(file: SlotFile, folder: Path) -> Look:
    with Folder(str(folder)) as opened:
        return file.look(opened)


def _never(*_: object) -> None:
    raise AssertionError("a block was looked for that cannot have changed")
