"""Other files next to a record, in a directory that others write to: none of them harms us."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support import builders
from support.records import ended, environment, held, live_slot, slot_bytes, warm, write_record
from warmwatch.recorder.files import create, opened_beside, reopened
from warmwatch.recorder.other_records import free_run, prune
from warmwatch.shared import record
from warmwatch.shared.record import Identity
from warmwatch.shared.record.sealed_blocks import store

ATTACH = """
import os, sys, warmwatch
warmwatch.attach()
warmwatch.step()
from warmwatch.lifecycle import api as _current
print(_current.attached.agent.record.writer.folder, flush=True)
input()
"""
MOST_RECORDS = 200


def attached(directory: Path, uid: int | None = None) -> tuple[Path | None, str]:
    """The record that a process makes there, and whether its lock is held while it lives."""
    script = ATTACH.replace("warmwatch.attach", f"os.setuid({uid}); warmwatch.attach", 1)
    with subprocess.Popen(
        [sys.executable, "-c", script if uid else ATTACH],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(WARMWATCH_DIR=str(directory)),
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        folder = None if line in ("", "None") else Path(line)
        holder = _holder(folder) if folder and folder.exists() else None
        process.kill()
        return folder, "held" if holder == process.pid else "free"


def _holder(folder: Path) -> int | None:
    import fcntl

    with (folder / record.SLOT).open("rb") as slot:
        return record.lock_holder(fcntl.fcntl(slot, fcntl.F_GETLK, record.LOCK_QUESTION))


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def sparse_terabyte(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


def run_of_no_name(path: Path) -> None:
    data = bytearray(slot_bytes(builders.slot(launch="other")))
    store(data, record.IDENTITY_BLOCK, json.dumps({"run": {}}).encode())
    path.write_bytes(data)


def a_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("plant", [fifo, endless, sparse_terabyte, run_of_no_name, a_folder])
@pytest.mark.timeout(60)
def test_a_file_in_its_way_neither_blocks_the_training_nor_prevents_its_record(
    records: Path, plant: Callable[[Path], None], tmp_path: Path
) -> None:
    """Under the name that a run from the command line has: that of the working directory."""
    folder = records / f"{Path.cwd().name}-r0-1-abc"
    folder.mkdir()
    plant(folder / record.SLOT)
    try:
        made, lock = attached(records)
    finally:
        _remove(folder)
    assert made is not None
    assert (made.parent, lock) == (records, "held")


def _remove(folder: Path) -> None:
    slot = folder / record.SLOT
    slot.rmdir() if slot.is_dir() and not slot.is_symlink() else slot.unlink()
    folder.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's record")
def test_a_run_of_another_user_reserves_no_name_and_is_not_opened(tmp_path: Path) -> None:
    mine = Identity(run="gpt2", launch="mine")
    folder = write_record(tmp_path, live_slot(launch="other"), name="gpt2-r0")
    with held(folder):
        assert free_run(tmp_path, mine) == "gpt2-2"
        os.chown(folder / record.SLOT, 12345, 12345)
        assert free_run(tmp_path, mine) == "gpt2"


def test_a_live_run_of_this_user_reserves_its_name_and_a_dead_one_does_not(tmp_path: Path) -> None:
    mine = Identity(run="gpt2", launch="mine")
    folder = write_record(tmp_path, live_slot(launch="other"), name="gpt2-r0")
    with held(folder):
        assert free_run(tmp_path, mine) == "gpt2-2"
        assert free_run(tmp_path, Identity(run="gpt2", launch="other")) == "gpt2"
    assert free_run(tmp_path, mine) == "gpt2"


def test_records_with_future_times_do_not_evict_the_training_s_own(records: Path) -> None:
    """After the clock was set back its own is the oldest; to open it would free its lock."""
    for number in range(MOST_RECORDS + 10):
        folder = write_record(records, ended(warm(), "finished"), name=f"old-{number:03d}")
        os.utime(folder / record.SLOT, (2**32 + number, 2**32 + number))
    made, lock = attached(records)
    assert made is not None
    assert (made.exists(), lock) == (True, "held")
    assert len(list(records.iterdir())) == MOST_RECORDS


OPEN = """
import sys
from warmwatch.shared import record
from warmwatch.recorder.writer import Writer
writer = Writer()
header = record.Header(warm_steps=3, attached_ns=1, attached_epoch_ns=1)
writer.open([sys.argv[1]], header, record.Identity(run="t"), named=True)
print(writer.folder, flush=True)
input()
"""


def test_a_record_created_above_the_limit_is_still_locked(records: Path) -> None:
    """Before anything rare takes the lock again: our own slot was not opened."""
    for number in range(MOST_RECORDS + 10):
        folder = write_record(records, ended(warm(), "finished"), name=f"old-{number:03d}")
        os.utime(folder / record.SLOT, (2**32 + number, 2**32 + number))
    with subprocess.Popen(
        [sys.executable, "-c", OPEN, str(records)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert _holder(Path(process.stdout.readline().strip())) == process.pid
        process.kill()


def test_a_record_is_pruned_with_all_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warmwatch.recorder.other_records._MOST_RECORDS", 1)
    folder = write_record(tmp_path, ended(live_slot(), "finished"), name="gpt2-r0")
    for name in (record.EXIT, record.STACKS):
        (folder / name).write_bytes(b"")
    prune(tmp_path, own=None)
    assert list(tmp_path.iterdir()) == []


def test_a_live_record_without_its_lock_is_not_pruned(records: Path) -> None:
    """A copy of its folder, made by its own process, frees it."""
    living = write_record(records, warm(pid=os.getpid()), name="living")
    dead = write_record(records, warm(pid=2**22 + 1), name="dead")
    for folder in (living, dead):
        os.utime(folder / record.SLOT, (1, 1))
    for number in range(MOST_RECORDS):
        write_record(records, ended(warm(), "finished"), name=f"old-{number:03d}")
    attached(records)
    assert (living.exists(), dead.exists()) == (True, False)


def test_a_link_to_another_place_is_not_followed_when_records_are_pruned(
    records: Path, tmp_path: Path
) -> None:
    precious = write_record(tmp_path / "elsewhere", ended(warm(), "finished"))
    os.utime(precious / record.SLOT, (1, 1))
    (records / "link").symlink_to(precious)
    for number in range(MOST_RECORDS + 1):
        write_record(records, ended(warm(), "finished"), name=f"old-{number:03d}")
    attached(records)
    assert (precious / record.SLOT).exists()
    (records / "link").unlink()


def replaced_by_link(folder: Path, target: Path) -> None:
    """As another user does who may rename what is in the directory."""
    folder.rename(folder.with_name("moved away"))
    folder.symlink_to(target)


def test_a_folder_that_is_replaced_while_it_is_pruned_costs_no_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, other = tmp_path / "records", tmp_path / "other"
    monkeypatch.setattr("warmwatch.recorder.other_records._MOST_RECORDS", 1)
    folder = write_record(records, ended(live_slot(), "finished"), name="gpt2-r0")
    other.mkdir()
    for name in (record.SLOT, record.JOURNAL):
        (other / name).write_text("another program's")

    def is_over(_descriptor: int) -> bool:
        replaced_by_link(folder, other)
        return True

    monkeypatch.setattr("warmwatch.recorder.other_records._is_over", is_over)
    prune(records, own=None)
    assert {one.name for one in other.iterdir()} == {record.SLOT, record.JOURNAL}


def test_a_folder_that_is_replaced_while_it_is_made_leads_to_no_other_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, other = tmp_path / "records", tmp_path / "other"
    records.mkdir()
    other.mkdir(mode=0o700)
    allocate = os.posix_fallocate

    def replacing(descriptor: int, offset: int, length: int) -> None:
        replaced_by_link(next(records.glob(".*")), other)
        allocate(descriptor, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", replacing)
    create(records, slot_bytes(live_slot()), Identity(run="gpt2"), "all")
    assert (other.stat().st_mode & 0o777, list(other.iterdir())) == (0o700, [])


def test_files_of_a_record_are_opened_in_its_folder_only(tmp_path: Path) -> None:
    records, other = tmp_path / "records", tmp_path / "other"
    records.mkdir()
    other.mkdir()
    (other / record.STACKS).write_text("another program's")
    files = create(records, slot_bytes(live_slot()), Identity(run="gpt2"), "owner")
    os.close(opened_beside(files, record.STACKS, os.O_WRONLY | os.O_CREAT))
    replaced_by_link(files.folder, other)
    for act in (
        lambda: opened_beside(files, record.STACKS, os.O_WRONLY | os.O_TRUNC),
        lambda: reopened(files),
    ):
        with pytest.raises(OSError):  # noqa: PT011 - of a link
            act()
    files.folder.unlink()
    files.folder.mkdir()
    (files.folder / record.SLOT).write_text("another program's")
    with pytest.raises(FileNotFoundError, match="slot is another file"):
        reopened(files)
    assert (other / record.STACKS).read_text() == "another program's"
