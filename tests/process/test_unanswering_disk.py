"""A disk that does not answer, stood for by calls that do not return: how long the training waits.

No root is needed for it, and nothing depends on how long anything takes: where what is asserted
happens, the disk has not answered yet.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import slots
from support.records import environment, holder
from warmwatch.recorder.mapping import in_memory
from warmwatch.shared import record

pytestmark = pytest.mark.long


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A directory that is not in memory."""
    if in_memory(tmp_path):
        pytest.skip("temporary files are in memory here")
    (tmp_path / "records").mkdir()
    return tmp_path / "records"


@contextlib.contextmanager
def started(program: str, disk: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        env=environment(WARMWATCH_DIR=str(disk)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


# For how long the training's own thread is ready to wait for a lock of the copying thread's. While
# the disk answers it waits for as long as that takes.
DETACHES = """
import fcntl, json, os, sys, threading, time, warmwatch
from warmwatch.recorder import disk_flusher as _flusher
from warmwatch.lifecycle import api as _current
main, waits, well = threading.get_ident(), [], True
class Waited:
    def __init__(self):
        self.lock = threading.Lock()
        self.lock.acquire()
        self.locked, self.release = self.lock.locked, self.lock.release
    def acquire(self, timeout):
        if threading.get_ident() != main:
            return self.lock.acquire(timeout=timeout)
        waits.append((timeout, self.lock.acquire(timeout=600 if well else timeout)))
        return waits[-1][1]
_flusher.locked = Waited
hangs, answers = threading.Event(), threading.Event()
def hanging(call):
    def hung(*arguments):
        hangs.set()
        answers.wait()
        return call(*arguments)
    return hung
warmwatch.attach(run="t")
warmwatch.step()
writer = _current.attached.agent.record.writer
assert writer.flush(60)
if sys.argv[1] == "it hung before":
    os.pwrite, well = hanging(os.pwrite), False
    warmwatch.step()
    hangs.wait()
else:
    close = writer.close
    def closing():
        global well
        fcntl.lockf, well = hanging(fcntl.lockf), False
        close()
    writer.close = closing
waits.clear()
warmwatch.detach()
print(json.dumps(waits), flush=True)
input()
answers.set()
while len(os.listdir("/proc/self/task")) > 1:
    time.sleep(.01)
print("over", flush=True)
input()
"""


@pytest.mark.parametrize(
    ("when", "waited"),
    [
        ("it hung before", [[1.0, False], [0, False]]),
        ("it hangs from then on", [[1.0, True], [1.0, False]]),
    ],
)
def test_a_detach_waits_for_a_disk_for_at_most_a_second(
    disk: Path, when: str, waited: list[list[object]]
) -> None:
    """Every report is on the disk once it answers, and the lock is held until then."""
    with started(DETACHES, disk, when) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == waited
        folder = slots.only(disk)
        assert holder(folder) == process.pid
        process.stdin.write("answer\n")
        process.stdin.flush()
        assert process.stdout.readline() == "over\n"
        assert holder(folder) is None
        slot = slots.read(folder)
        steps = 2 if when == "it hung before" else 1
        assert (slot.steps.steps, record.ENDS[slot.compile.end_code]) == (steps, "detached")
        process.stdin.write("leave\n")
        process.stdin.close()
        assert process.wait() == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


# The directory answers late, and then cannot be written twice.
FAILS = """
import threading, time, warmwatch
from warmwatch.recorder import disk_flusher as _flusher
from warmwatch.recorder import files as _files
from warmwatch.recorder import writer as _writer
from warmwatch.lifecycle import api as _current
answers, tries, prepare = threading.Event(), [], _files._prepare
def failing(*args, **kwargs):
    answers.wait()
    tries.append(1)
    if len(tries) < 3:
        raise PermissionError("not yet")
    return prepare(*args, **kwargs)
_files._prepare = failing
_writer._OPEN_TIMEOUT, _writer._TIMEOUT, _flusher._RETRIES = .1, 600, (.05, .05)
warmwatch.attach(run="t")
warmwatch.step()
answers.set()
while not _current.attached.agent.record.visible:
    time.sleep(.01)
warmwatch.attach(tokens_per_step=7)  # something rare: by then the thread has something to say
warmwatch.attach(tokens_per_step=8)
"""


def test_a_directory_that_fails_after_the_timeout_is_retried_until_it_is_writable(
    disk: Path,
) -> None:
    with started(FAILS, disk) as process:
        _, output = process.communicate()
        assert process.returncode == 0, output
    warnings = [line for line in output.splitlines() if "warmwatch: " in line]
    assert ["does not answer" in line for line in warnings] == [True, False]
    assert "the record cannot be written now (not yet); will retry" in warnings[1]
    slot = slots.read(slots.only(disk))
    assert (slot.steps.steps, record.ENDS[slot.compile.end_code]) == (1, "finished")
    assert slot.compile.tokens_per_step == 8
