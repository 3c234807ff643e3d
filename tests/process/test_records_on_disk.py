"""A record on a disk: what happens to the disk never happens to the training.

Each case on each filesystem that can be had. What a training does under a fault is done before the
fault ends, so that nothing here depends on how long anything takes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import protocol, slots
from support.filesystems import FAULTS, FOR_GOOD, KINDS, NotHereError, full, mounted
from support.records import ended, environment, wait_until, warm, write_record
from support.stepping import PATIENCE, PATIENT, PROGRAM, stepping
from support.trainings import run
from warmwatch.recorder.mapping import in_memory
from warmwatch.shared import record


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A directory that is not in memory."""
    if in_memory(tmp_path):
        pytest.skip("temporary files are in memory here")
    (tmp_path / "records").mkdir()
    return tmp_path / "records"


def steps_of(folder: Path) -> int:
    with contextlib.suppress(OSError, record.RecordError):
        return slots.read(folder).steps.steps
    return -1


def holder(folder: Path) -> int | None:
    with (folder / record.SLOT).open("rb") as slot:
        return record.lock_holder(fcntl.fcntl(slot, fcntl.F_GETLK, record.LOCK_QUESTION))


ON = [pytest.param(kind, marks=[pytest.mark.long] * (kind != "ext4")) for kind in KINDS]


@pytest.mark.parametrize("kind", ON)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_disk_error_neither_blocks_nor_ends_the_training(
    tmp_path: Path, kind: str, fault: str
) -> None:
    errors = tmp_path / "errors"
    try:
        with (
            mounted(kind) as disk,
            stepping(disk.place / "records", errors) as training,
        ):
            folder = training.folder
            with FAULTS[fault](disk, folder / record.SLOT):
                training.step()
            training.step()
            if fault not in FOR_GOOD:
                wait_until(lambda: steps_of(folder) == training.steps)
                assert holder(folder) == training.process.pid
            training.leave()
            assert training.process.wait() == 0
            if fault not in FOR_GOOD:
                assert record.ENDS[slots.read(folder).compile.end_code] == "finished"
                assert record.exit_code((folder / record.EXIT).read_bytes()) == 0
    except NotHereError as error:
        pytest.skip(str(error))
    assert errors.read_text().count("UserWarning") <= 1


@pytest.mark.parametrize("kind", ON)
def test_a_full_disk_has_room_for_the_end_of_the_process(tmp_path: Path, kind: str) -> None:
    # What is registered first runs last, after the promise: it is on the disk before the status is.
    program = "import atexit, os; atexit.register(os.sync)\n" + PATIENT + "sys.exit(3)\n"
    try:
        with (
            mounted(kind) as disk,
            stepping(disk.place / "records", tmp_path / "errors", program) as training,
        ):
            folder = training.folder
            assert (folder / record.EXIT).read_bytes() == b"", "its room is none that a reader sees"
            with full(disk, folder / record.SLOT):
                training.leave()
                assert training.process.wait() == 3
                assert record.exit_code((folder / record.EXIT).read_bytes()) == 3
    except NotHereError as error:
        pytest.skip(str(error))


def test_a_frozen_disk_does_not_delay_the_exit_of_python(tmp_path: Path) -> None:
    """The kernel holds the process while a write hangs, but its own work is all done."""
    errors = tmp_path / "errors"
    try:
        with mounted("ext4") as disk, stepping(disk.place / "records", errors, PROGRAM) as training:
            with FAULTS["frozen"](disk, training.folder / record.SLOT):
                training.step()
                training.leave()
                assert training.line() == "over"
            assert training.process.wait() == 0
    except NotHereError as error:
        pytest.skip(str(error))


def test_a_record_that_begins_on_a_frozen_disk_is_written_later(tmp_path: Path) -> None:
    """The training prints a warning and continues; its folder has a name once it exists."""
    errors = tmp_path / "errors"
    try:
        with mounted("ext4") as disk:
            records = disk.place / "records"
            with contextlib.ExitStack() as stack:
                freeze = stack.enter_context(contextlib.ExitStack())
                freeze.enter_context(FAULTS["frozen"](disk, records))
                training = stack.enter_context(stepping(records, errors, PROGRAM))
                training.step()
                assert "does not answer" in errors.read_text()
                assert list(records.iterdir()) == []
                freeze.close()
                wait_until(lambda: slots.folders(records))
                folder = slots.only(records)
                wait_until(lambda: steps_of(folder) == training.steps)
                training.leave()
                assert training.process.wait() == 0
                assert record.exit_code((folder / record.EXIT).read_bytes()) == 0
    except NotHereError as error:
        pytest.skip(str(error))


def test_rare_facts_and_the_end_are_on_the_disk_when_the_process_is_gone(disk: Path) -> None:
    with stepping(disk, disk.parent / "errors") as training:
        training.step(25)
        training.leave()
        assert training.process.wait() == 0
        slot = slots.read(training.folder)
        assert (slot.steps.steps, record.ENDS[slot.compile.end_code]) == (26, "finished")
        assert slots.events(training.folder)[-1]["event"] == "exit"
        assert record.exit_code((training.folder / record.EXIT).read_bytes()) == 0


@pytest.mark.parametrize(
    "ends",
    ["os._exit(0)", "os.execv(sys.executable, [sys.executable, '-c', ''])"],
    ids=["_exit", "exec"],
)
def test_a_detach_before_an_end_without_an_exit_record_loses_no_step(disk: Path, ends: str) -> None:
    body = f"""
import os, sys, warmwatch
warmwatch.attach()
for _ in range(1000): warmwatch.step()
warmwatch.detach()
{ends}
"""
    subprocess.run(
        [sys.executable, "-c", body], env=environment(WARMWATCH_DIR=str(disk)), check=True
    )
    slot = slots.read(slots.only(disk))
    assert (slot.steps.steps, record.ENDS[slot.compile.end_code]) == (1000, "detached")


def test_a_training_that_closes_all_descriptors_keeps_its_record(disk: Path) -> None:
    """The slot is opened and locked again, and only its owner may write to it, as before."""
    closes = PATIENT.replace("for line in", "os.closerange(3, 4096)\nfor line in")
    with stepping(disk, disk.parent / "errors", closes) as training:
        training.step()
        wait_until(lambda: steps_of(training.folder) == training.steps)
        assert holder(training.folder) == training.process.pid
        assert (training.folder / record.SLOT).stat().st_mode & 0o7777 == 0o400


FORKS = f"""
import os, sys, threading, warmwatch
{PATIENCE}
warmwatch.attach(run="t", tokens_per_step=1)
for number in range(20):
    warmwatch.step()
    child = os.fork()
    if not child:
        # as many lines of its parent's as may wait, and a lock that a thread may have held
        assert len(os.listdir("/proc/self/task")) == 1
        warmwatch.attach(tokens_per_step=7)
        if number == 19:
            warmwatch.step()
            sys.exit()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
while len(os.listdir("/proc/self/task")) > 2: pass  # one that is over is seen for a moment still
assert len(os.listdir("/proc/self/task")) == 2
assert threading.active_count() == 1, "joining all threads does not wait for it"
"""


def test_the_record_of_a_training_that_ends_right_after_a_fork_is_complete(disk: Path) -> None:
    """The thread survives forks, and a child that reports something has its own record."""
    done = subprocess.run(
        # Python 3.12 warns of forks in a process with threads; trainings that took a step have some
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKS],
        env=environment(WARMWATCH_DIR=str(disk)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = {slot.identity.run: slot for slot in map(slots.read, slots.folders(disk))}
    assert {run: slot.steps.steps for run, slot in found.items()} == {"t": 20, "t.fork-20": 1}
    assert {record.ENDS[slot.compile.end_code] for slot in found.values()} == {"finished"}
    assert found["t"].compile.tokens_per_step == 1, "a child's reports are its own"


# A reader of a process that only writes reads nothing half-written, and refuses nothing


DIFFERENT = 500  # images, so that the writer was at work however busy the machine is


def test_a_counter_is_never_read_torn() -> None:
    with protocol.written("steps") as slot:
        found = protocol.read_steps(slot, DIFFERENT)
    assert found.torn == 0


def test_a_sealed_block_is_never_read_torn_or_out_of_order() -> None:
    with protocol.written("blocks") as slot:
        found = protocol.read_blocks(slot, DIFFERENT)
    assert (found.torn, found.backwards) == (0, 0)
    assert found.refused < found.reads / 20, "a store spares the last whole block"


# Records of a user beyond the limit are removed


MOST_RECORDS = 200


def records_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_the_oldest_ended_records_of_a_user_are_removed_beyond_the_limit(records: Path) -> None:
    """Those of others stay, in a directory that everybody shares."""
    for number in range(MOST_RECORDS + 5):
        folder = write_record(records, ended(warm(), "finished"), name=f"old-{number:03d}")
        os.utime(folder / "slot", (number, number))
    if os.geteuid() == 0:
        os.chown(records / "old-000" / "slot", 12345, 12345)
    run(records, "train(make(), torch.optim.SGD(make().parameters()), 1)")
    left = records_in(records)
    foreign = 1 if os.geteuid() == 0 else 0
    assert len(left) == MOST_RECORDS + foreign
    assert ("old-000" in left) == bool(foreign)
    assert "old-001" not in left
    assert f"old-{MOST_RECORDS + 4}" in left
