"""Liveness of real processes: a killed one is gone immediately, one that lost its lock is not.

A copy of a record's folder, made by the training itself for an upload, closes a descriptor of the
slot, and with that the kernel frees the lock.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support import builders
from support.builders import NOW, SECOND
from support.records import environment, held, update, wait_until, write_record
from warmwatch.shared import record
from warmwatch.shared.record import CompileCounts, StepCounts
from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.model.records import RecordReading
from warmwatch_monitor.sources import proc
from warmwatch_monitor.sources.records import liveness
from warmwatch_monitor.sources.records.liveness import Holder, Presence, holder, presence, writer
from warmwatch_monitor.sources.records.source import RecordsSource

TRAINING = """
import os, shutil, sys, warmwatch
warmwatch.attach(run="t")
warmwatch.step()
from warmwatch.lifecycle import api as _current
folder = str(_current.attached.agent.record.writer.folder)
print(folder, flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""
COPY = "shutil.copytree(folder, sys.argv[1] + str(os.urandom(4).hex()))"


class Training:
    """A process with an agent that runs commands, one line at a time."""

    def __init__(self, process: subprocess.Popen[str], elsewhere: Path) -> None:
        self.process, self._elsewhere = process, elsewhere
        self.folder = Path(self._line())

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def do(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        assert self._line() == "done"


@pytest.fixture
def training(tmp_path: Path, memory: Path) -> Iterator[Training]:
    with subprocess.Popen(
        [sys.executable, "-c", TRAINING, str(tmp_path / "copy-")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(WARMWATCH_DIR=str(memory)),
    ) as process:
        yield Training(process, tmp_path)
        process.kill()


class Hands:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.now_ns = NOW

    def source(self, directory: Path, boot: str = "") -> RecordsSource:
        clock = Clock(
            monotonic_ns=lambda: self.now_ns,
            epoch=lambda: builders.EPOCH + (self.now_ns - NOW) / SECOND,
        )
        return RecordsSource([str(directory)], retention=900, clock=clock, boot=boot)

    def turn(self, seconds: float) -> None:
        self.now_ns += round(seconds * SECOND)


@pytest.fixture
def hands() -> Hands:
    return Hands()


def only(source: RecordsSource) -> RecordReading:
    (reading,) = source.read().records
    return reading


def lock_is_free(folder: Path) -> bool:
    with (folder / record.SLOT).open("rb") as slot:
        import fcntl

        answer = fcntl.fcntl(slot, fcntl.F_GETLK, record.LOCK_QUESTION)
    return record.lock_holder(answer) is None


@pytest.mark.parametrize("copied", [False, True])
def test_a_killed_training_is_gone_at_the_next_poll(
    tmp_path: Path, training: Training, hands: Hands, *, copied: bool
) -> None:
    """Even if it made a step since the previous poll, or had lost its lock."""
    source = hands.source(training.folder.parent)
    assert only(source).alive
    if copied:
        training.do(COPY)
        assert only(source).alive
    training.do("warmwatch.step()")
    os.kill(training.process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, training.process.pid, os.WEXITED | os.WNOWAIT)  # a zombie from here on
    hands.turn(0.2)
    reading = only(source)
    assert (reading.alive, reading.pid, reading.gone_ns) == (False, None, hands.now_ns)
    hands.turn(0.2)
    later = only(source)  # the kernel may report the signal only now
    assert (later.alive, later.pid, later.gone_ns) == (False, None, reading.gone_ns), "and stays so"


@pytest.mark.parametrize(
    "program", [(sys.executable, "-c", "input()"), ("/bin/cat",)], ids=["python", "cat"]
)
def test_a_process_that_executed_another_program_is_gone(
    training: Training, hands: Hands, program: tuple[str, ...]
) -> None:
    """Its pid and its start are the same, but it has the slot no longer open.

    A signal that kills the other program is none of the training's.
    """
    source = hands.source(training.folder.parent)
    assert only(source).alive
    assert training.process.stdin is not None
    training.process.stdin.write(f"os.execv({program[0]!r}, {program!r})\n")
    training.process.stdin.flush()
    wait_until(lambda: lock_is_free(training.folder))
    only(source)
    hands.turn(2.1)
    assert not only(source).alive
    assert source._shared is not None
    followed = source._shared.exits.follow(training.process.pid)
    os.kill(training.process.pid, signal.SIGABRT)
    training.process.wait()
    wait_until(lambda: followed is not None and followed.death is not None)
    hands.turn(11)
    assert only(source).death is None


def test_the_agent_does_not_close_a_descriptor_that_now_belongs_to_another_file(
    tmp_path: Path, training: Training
) -> None:
    """Code that closes all descriptors is known from daemons; the numbers are given out again."""
    training.do("slot = _current.attached.agent.record.writer._files.slot; os.close(slot)")
    training.do("other = os.dup2(os.open(sys.argv[1] + 'other', os.O_RDWR | os.O_CREAT), slot)")
    training.do("from warmwatch import _guard; _guard.report('test', ValueError())")
    training.do("warmwatch.detach(); os.fstat(other)")


# The process cannot be read: another pid namespace, or its lock was never found held.


@contextmanager
def unasked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        for name in ("holder", "writer"):
            patch.setattr(liveness, name, lambda *_: None)
        yield


@pytest.fixture
def move(tmp_path: Path) -> Callable[[int], None]:
    return lambda steps: update(tmp_path / "a", builders.slot(StepCounts(steps=steps)))


def test_advancing_steps_show_life_if_the_process_cannot_be_read(
    tmp_path: Path,
    hands: Hands,
    move: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = write_record(tmp_path, builders.slot(StepCounts(steps=1)))
    with unasked(monkeypatch):
        source = hands.source(tmp_path)
        with held(folder):
            assert only(source).alive
        wait_until(lambda: lock_is_free(folder))
        for steps in range(2, 9):
            hands.turn(1.9)
            move(steps)
            reading = only(source)
            assert (reading.alive, reading.pid, reading.gone_ns) == (True, None, None)
        hands.turn(2)
        assert (only(source).alive, only(source).gone_ns) == (False, hands.now_ns)


def test_a_rank_that_was_gone_and_advances_or_locks_again_is_alive(
    tmp_path: Path, hands: Hands, move: Callable[[int], None]
) -> None:
    """After any time, with its latest report."""
    folder = write_record(tmp_path, builders.slot(StepCounts(steps=1)))
    source = hands.source(tmp_path)
    assert not only(source).alive, "its lock was never seen"
    for seconds, steps in ((0.2, 2), (500, 3)):
        hands.turn(seconds)
        move(steps)
        assert (only(source).alive, only(source).slot.steps.steps) == (True, steps)
        hands.turn(3)
        assert not only(source).alive
    with held(folder) as process:
        assert (only(source).alive, only(source).pid) == (True, process.pid)


def test_a_shared_lock_of_another_process_is_not_a_sign_of_life(
    tmp_path: Path, hands: Hands
) -> None:
    folder = write_record(tmp_path, builders.slot())
    share = "import fcntl, sys; f = open(sys.argv[1]); fcntl.lockf(f, fcntl.LOCK_SH)\n"
    share += "print('shared', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", share, str(folder / record.SLOT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "shared\n"
        assert not only(hands.source(tmp_path)).alive
        process.kill()


def stat_of(folder: Path, pid: int, *, state: str = "S", flags: int = 0, started: int = 77) -> None:
    (folder / str(pid)).mkdir(exist_ok=True)
    fields = [state, *"12345", str(flags), *["0"] * 12, str(started), "0"]
    (folder / str(pid) / "stat").write_text(f"{pid} (a ) name) {' '.join(fields)}\n")


def test_a_process_is_gone_when_its_pid_is_reused_or_it_is_exiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process with GPUs is a while on its way out, its lock free and its pid there."""
    stat_of(tmp_path, 7)
    monkeypatch.setattr(proc, "PROC", str(tmp_path))
    known = holder(7)
    assert known == Holder(pid=7, started=77)
    assert presence(known, 5) is Presence.THERE, "its open files may not be read"
    (tmp_path / "7" / "fd").mkdir()
    maps = tmp_path / "7" / "maps"
    maps.write_text("7f00-7f01 rw-s 00000000 00:19 4 /run/warmwatch/a/slot\n")
    assert presence(known, 5) is Presence.UNKNOWN
    maps.write_text("7f00-7f01 rw-s 00000000 00:19 5 /run/warmwatch/a/slot\n7f02-7f03 rw-p 0 0 0\n")
    assert presence(known, 5) is Presence.THERE, "a mapping outlives its descriptor"
    assert writer(7, 5, 0) == known
    assert writer(7, 6, 0) is None
    assert writer(0, 5, 0) is None
    (tmp_path / "7" / "fd" / "3").symlink_to(tmp_path)
    assert presence(known, tmp_path.stat().st_ino) is Presence.THERE
    for other in ({"state": "Z"}, {"flags": 4}, {"started": 78}):
        stat_of(tmp_path, 7, **other)  # type: ignore[arg-type]
        assert presence(known, 5) is Presence.GONE
    (tmp_path / "7" / "stat").unlink()
    assert presence(known, 5) is Presence.GONE
    assert holder(7) is None


@pytest.mark.parametrize(
    ("peak", "code", "found"),
    [
        (5000, 20, Presence.THERE),
        (9000, 20, Presence.THERE),
        (4999, 20, Presence.REPLACED),  # the same program again: python that executes python
        (9000, 21, Presence.REPLACED),
        (None, None, Presence.THERE),  # not readable: a kernel thread, or a sandbox
    ],
)
def test_a_process_with_a_new_address_space_runs_another_program(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    peak: int | None,
    code: int | None,
    found: Presence,
) -> None:
    """The peak of mapped memory never falls, and the code size is constant."""

    def tell(peak: int | None, code: int | None) -> None:
        memory = f"VmPeak:\t {peak} kB\nVmExe:\t {code} kB\n" if peak else ""
        (tmp_path / "7" / "status").write_text(
            f"Name:\ta\nUid:\t5\t6\t6\t6\n{memory}NSpid:\t7\t1\n"
        )

    stat_of(tmp_path, 7)
    monkeypatch.setattr(proc, "PROC", str(tmp_path))
    tell(5000, 20)
    known = holder(7)
    assert known is not None
    assert (known.uids, known.pids) == ({5, 6}, (7, 1))
    tell(peak, code)
    assert presence(known, 5) is found


# runs after the agent's own handler, and frees the lock as any code may that opens the slot
LATER = """
import atexit, time
def later():
    open(f"{folder}/slot", "rb").close()
    open(sys.argv[1], "w").close()
    while not os.path.exists(sys.argv[2]):
        time.sleep(0.01)
    if os.path.getsize(sys.argv[2]):
        os.kill(os.getpid(), 9)
atexit.register(later)
"""


@pytest.mark.parametrize(
    ("last", "word", "end", "code"),
    [("", "", "finished", 0), ("sys.exit(3)", "", "failed", 3), ("", "die", "", None)],
    ids=["returns", "exits with 3", "is killed"],
)
def test_a_rank_that_unlocked_its_record_at_its_end_is_trusted_once_it_is_gone(
    tmp_path: Path, memory: Path, hands: Hands, last: str, word: str, end: str, code: int | None
) -> None:
    """Its exit status comes last; what it promised is not broken before."""
    at_end, go = tmp_path / "at-end", tmp_path / "go"
    with subprocess.Popen(
        [sys.executable, "-c", f"{LATER}{TRAINING}\n{last}", str(at_end), str(go)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(WARMWATCH_DIR=str(memory)),
    ) as process:
        training = Training(process, tmp_path)
        hands.now_ns = time.monotonic_ns()  # the training's own: it ends by that
        source = hands.source(memory)
        assert only(source).alive
        assert process.stdin is not None
        process.stdin.close()
        wait_until(at_end.exists)
        assert lock_is_free(training.folder), "or this test proves nothing"
        seen = []
        for seconds in (0, 3, 60):
            hands.turn(seconds)
            reading = only(source)
            seen.append((reading.alive, reading.pid))
        (tmp_path / "word").write_text(word)
        (tmp_path / "word").rename(go)
    assert seen == [(True, process.pid)] * 3
    hands.turn(0.2)
    assert ended(only(source)) == (False, end, code)


def ended(reading: RecordReading) -> tuple[bool, str, int | None]:
    counts = reading.slot.compile
    code = counts.exit_code - 1 if counts.exit_code else None
    return reading.alive, record.ENDS[counts.end_code], code


def test_a_late_exit_status_is_accepted(tmp_path: Path, hands: Hands) -> None:
    """For a process that cannot be read here: it freed its lock earlier."""
    counts = CompileCounts(end_code=record.ENDS.index("finished"), ended_ns=NOW)
    folder = write_record(tmp_path, builders.slot(StepCounts(steps=1), counts))
    (folder / record.EXIT).write_bytes(record.EXIT_PROMISED)
    source = hands.source(tmp_path)
    for seconds in (0, 3):
        hands.turn(seconds)
        reading = only(source)
        assert ended(reading) == (False, "", None)
        assert only(source) is reading, "and is reused meanwhile"
    with (folder / record.EXIT).open("ab") as left:
        left.write((3).to_bytes(4, "little"))
    assert ended(only(source)) == (False, "failed", 3)
