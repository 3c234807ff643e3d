"""How a process ended, as its record tells it; and that the end is the same without the agent.

The processes import no PyTorch: a step marked by hand makes a record, and the end is Python's.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support import slots
from support.records import wait_until
from support.trainings import environment
from warmwatch.process.ending import End, end_of
from warmwatch.shared import record
from warmwatch_monitor.sources.records.folder import Folder, at_the_end, left_by

STEP = """
import os, signal, sys, threading, time
import warmwatch
warmwatch.attach(); warmwatch.step()
"""


def train(records: Path, body: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script that marks a step and then does ``body``."""
    script = records.parent / "train.py"
    script.write_text(STEP + body)
    return subprocess.run(
        [sys.executable, str(script)],
        env=environment(records, PYTHONUNBUFFERED="", **env),
        cwd=records.parent,
        text=True,
        capture_output=True,
        check=False,
    )


def end(folder: Path) -> tuple[str, int | None]:
    """How it ended and with which exit code, as a monitor takes it once the lock is free."""
    with Folder(str(folder)) as opened:
        counts = at_the_end(slots.read(folder).compile, left_by(opened))
    return record.ENDS[counts.end_code], counts.exit_code - 1 if counts.exit_code else None


def exception(folder: Path) -> str | None:
    last = slots.events(folder)[-1]
    return last.get("exception") if last["event"] == "exit" else None


THREAD = "threading.Thread(target=lambda: {}, daemon={}).start()\n"
ENDS = {
    "returns": ("pass", "finished", 0, None),
    "exit 0": ("sys.exit()", "finished", 0, None),
    "exit 3": ("sys.exit(3)", "failed", 3, None),
    "SystemExit": ("raise SystemExit(3)", "failed", 3, None),
    "words": ("sys.exit('no data')", "failed", 1, None),
    "below 0": ("sys.exit(-1)", "failed", 255, None),
    "uncaught": ("1 / 0", "failed", 1, "ZeroDivisionError"),
    "interrupted": ("raise KeyboardInterrupt", "interrupted", None, "KeyboardInterrupt"),
    # raised by the call itself: else the traceback points to where the signal happens to be seen
    "Ctrl-C": ("import signal; signal.raise_signal(2)", "interrupted", None, "KeyboardInterrupt"),
    "caught": ("try: 1 / 0\nexcept Exception: sys.exit(4)", "failed", 4, None),
    "terminated": ("os.kill(os.getpid(), 15); time.sleep(9)", "", None, None),
    "os._exit": ("os._exit(3)", "", None, None),
    "exec": ("os.execv(sys.executable, ['python', '-c', 'raise SystemExit(3)'])", "", None, None),
    "C's exit": ("import ctypes; ctypes.CDLL(None).exit(6)", "failed", 6, None),
    "daemon thread": (THREAD.format("time.sleep(99)", True) + "sys.exit(7)", "failed", 7, None),
    "thread raises": (THREAD.format("1 / 0", False) + "sys.exit(2)", "failed", 2, None),
    "stdout is gone": ("print('x'); os.close(1)", "failed", 120, None),
}


@pytest.mark.parametrize(("body", "how", "code", "raised"), ENDS.values(), ids=ENDS)
def test_the_exit_code_is_recorded_and_the_same_as_without_the_agent(
    records: Path, body: str, how: str, code: int | None, raised: str | None
) -> None:
    done = train(records, body)
    folder = slots.only(records)
    assert (*end(folder), exception(folder)) == (how, code, raised)
    alone = train(records, body, WARMWATCH_DISABLE="1")
    assert (done.returncode, done.stdout, done.stderr) == (
        alone.returncode,
        alone.stdout,
        alone.stderr,
    )
    if code is not None:
        assert done.returncode == code


@pytest.mark.parametrize(
    ("trains", "raised", "how"),
    [
        ("warmwatch.step()", "ZeroDivisionError", "failed"),
        ("warmwatch.step()", "KeyboardInterrupt", "interrupted"),
        ("warmwatch.activity('kernels')(int)()", "KeyboardInterrupt", "interrupted"),
        ("", "ZeroDivisionError", ""),
        ("warmwatch.ready()", "ZeroDivisionError", ""),
    ],
    ids=["main", "Ctrl-C", "Ctrl-C before a step", "another", "another later"],
)
def test_an_exception_is_recorded_while_a_thread_keeps_the_process_alive(
    records: Path, trains: str, raised: str, how: str
) -> None:
    """Unless that thread is the one that trains, or may be: no thread has marked a step."""
    script = records.parent / "train.py"
    script.write_text(
        "import threading, time, warmwatch\n"
        "def work():\n"
        f"    {'pass' if trains else 'warmwatch.step()'}\n"
        "    begun.set(); threading.main_thread().join()\n"
        "    open('over', 'w').close(); time.sleep(99)\n"
        "begun = threading.Event()\n"
        f"warmwatch.attach(); {trains}\n"
        f"threading.Thread(target=work).start(); begun.wait(); raise {raised}\n"
    )
    command = [sys.executable, str(script)]
    with subprocess.Popen(
        command, env=environment(records), cwd=records.parent, stderr=subprocess.DEVNULL
    ) as process:
        try:
            wait_until(lambda: (records.parent / "over").exists())
            folder = slots.only(records)
            assert record.ENDS[slots.read(folder).compile.end_code] == how
            assert exception(folder) == (raised if how else None)
        finally:
            process.kill()


def test_the_end_is_recorded_before_handlers_that_are_registered_later(records: Path) -> None:
    """As Inductor's, which waits for its workers when Python exits."""
    script = records.parent / "train.py"
    script.write_text(f"{STEP}import atexit; atexit.register(signal.pause)")
    with subprocess.Popen([sys.executable, str(script)], env=environment(records)) as process:
        try:
            wait_until(lambda: any(records.rglob("slot")))
            folder = slots.only(records)
            wait_until(lambda: record.ENDS[slots.read(folder).compile.end_code] == "finished")
        finally:
            process.kill()


def test_a_record_that_opens_after_the_main_thread_has_ended_has_no_error(records: Path) -> None:
    script = records.parent / "train.py"
    script.write_text(
        "import threading, warmwatch\n"
        "def work(): threading.main_thread().join(); warmwatch.step()\n"
        "warmwatch.attach(); threading.Thread(target=work).start()\n"
    )
    subprocess.run([sys.executable, str(script)], env=environment(records), check=True)
    folder = slots.only(records)
    assert [event["event"] for event in slots.events(folder)] == ["attach", "step", "exit"]
    assert end(folder) == ("finished", 0)


_FROM = "try: read()\nexcept ValueError as error: raise OSError('secret') from error"
WHERE = {
    "own line": ("1 / 0", "<module>"),
    "in a library": ("import json; json.loads('secret text')", "<module>"),
    "in a function": ("def read(text):\n    return int(text)\nread('secret text')", "read"),
    "endless": ("def again():\n    again()\nagain()", "again"),
    "from another": (f"def read(): raise ValueError('secret text')\n{_FROM}", "<module>"),
    "exit code": ("sys.exit('secret text')", None),
}


@pytest.mark.parametrize(("body", "name"), WHERE.values(), ids=WHERE)
def test_a_failure_names_the_nearest_user_line_and_no_message(
    records: Path, body: str, name: str | None
) -> None:
    train(records, body)
    folder = slots.only(records)
    last = slots.events(folder)[-1]
    assert last["event"] == "exit"
    assert last.get("name") == name
    assert last.get("file") == (None if name is None else "train.py")
    source = (records.parent / "train.py").read_text().splitlines()
    if name is not None:
        assert source[last["line"] - 1].strip() in body
    assert "secret" not in (folder / record.JOURNAL).read_text()


@pytest.mark.parametrize(
    "dies",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        "signal.raise_signal(signal.SIGSEGV)",
        "os.abort()",
        "os._exit(3)",
    ],
)
def test_a_process_that_dies_at_its_end_is_lost_and_not_finished(records: Path, dies: str) -> None:
    """After our own handler: in a library's, or while the interpreter is taken down."""
    script = records.parent / "train.py"
    script.write_text(f"import atexit, os, signal\natexit.register(lambda: {dies})\n{STEP}")
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler=0", str(script)],
        env=environment(records),
        capture_output=True,
        check=False,
    )
    assert done.returncode not in (0, None)
    assert end(slots.only(records)) == ("", None)
    command = [sys.executable, "-m", "warmwatch", "status", "--json"]
    output = subprocess.run(
        command, env=environment(records), capture_output=True, text=True, check=False
    )
    (run,) = json.loads(output.stdout)["runs"]
    assert (output.returncode, run["state"]) == (4, "lost")
    assert "its program was done, and it was killed at its end" in run["summary"]
    assert any("came to its end" in line for line in run["ranks"][0]["evidence"])


def test_the_exit_of_a_forked_child_is_not_recorded_as_its_parents(records: Path) -> None:
    """Neither one without a record, nor one with a record of its own."""
    body = """
for silent in (True, False):
    if not os.fork():
        if not silent: warmwatch.step()
        sys.exit(5)
    os.wait()
"""
    train(records, body)
    parent, child = slots.folders(records)
    assert (end(parent), end(child)) == (("finished", 0), ("failed", 5))
    assert len((parent / record.EXIT).read_bytes()) == 5


@pytest.mark.parametrize("limit", [64, 1100])
def test_a_child_forked_without_free_descriptors_never_writes_its_parents_record(
    records: Path, limit: int
) -> None:
    """Neither steps nor an end, whether the exit status's number is within the limit or not."""
    body = f"""
import resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, hard))
held = []
try:
    while True: held.append(os.open(os.devnull, os.O_RDONLY))
except OSError: pass
if not os.fork():
    for _ in range(9): warmwatch.step()
    sys.exit(7)
os.wait()
for number in held: os.close(number)
"""
    done = train(records, body)
    folder = slots.only(records)
    assert (done.returncode, end(folder)) == (0, ("finished", 0))
    assert slots.read(folder).steps.steps == 1
    assert len((folder / record.EXIT).read_bytes()) == 5


@pytest.mark.parametrize(
    "method",
    ["fork", *(pytest.param(one, marks=pytest.mark.long) for one in ("spawn", "forkserver"))],
)
@pytest.mark.parametrize(
    ("leave", "how", "code", "raised"),
    [
        ("pass", "finished", 0, None),
        ("sys.exit(4)", "failed", 4, None),
        ("sys.exit('no')", "failed", 1, None),
        ("raise ValueError", "failed", 1, "ValueError"),
    ],
)
def test_the_end_of_a_child_of_multiprocessing(
    records: Path, method: str, leave: str, how: str, code: int, raised: str | None
) -> None:
    body = f"""
import multiprocessing as mp
def child():
    warmwatch.step()
    {leave}
if __name__ == "__main__":
    p = mp.get_context({method!r}).Process(target=child); p.start(); p.join()
    sys.exit(p.exitcode + 10)
"""
    script = STEP.replace("warmwatch.step()", "") + body
    (records.parent / "spawn.py").write_text(script)
    command = [sys.executable, str(records.parent / "spawn.py")]
    done = subprocess.run(
        command, env=environment(records), cwd=records.parent, capture_output=True, check=False
    )
    folder = slots.only(records)
    assert (*end(folder), exception(folder)) == (how, code, raised)
    assert done.returncode == code + 10


def test_a_rank_that_torch_spawned_ends_with_the_exception_that_it_raised() -> None:
    """torch.multiprocessing writes it down for the parent and then leaves by ``sys.exit(1)``."""
    leaving = SystemExit(1)
    leaving.__context__ = MemoryError()
    assert end_of(leaving, None) == End(how="failed", exception="MemoryError", code=1)


def test_after_detaching_no_exit_code_is_recorded_and_after_reattaching_the_new_record_has_it(
    records: Path,
) -> None:
    body = "warmwatch.detach()\n{}\nsys.exit(3)"
    train(records, body.format(""))
    assert end(slots.only(records)) == ("detached", None)
    train(records, body.format("warmwatch.attach(); warmwatch.step()"))
    _, first, second = slots.folders(records)
    assert (end(first), end(second)) == (("detached", None), ("failed", 3))


def test_the_agent_never_writes_to_files_of_a_program_that_closed_all_descriptors(
    records: Path,
) -> None:
    body = """
held = [open(f"mine{n}", "w") for n in range(20)]
os.closerange(100, 4096)
held += [open(f"mine{n}", "w") for n in range(20, 40)]
sys.exit(3)
"""
    assert train(records, body).returncode == 3
    assert [path.read_bytes() for path in records.parent.glob("mine*")] == [b""] * 40
    assert end(slots.only(records)) == ("finished", None)


def test_the_agent_never_closes_files_that_such_a_program_opens_later(
    records: Path,
) -> None:
    """Neither written to as the journal, nor closed by a detach; the lines lost are counted.

    Whether they have the low numbers that the system gives, or those that were ours.
    """
    body = """
import fcntl, gc
os.closerange(3, 4096)
held = [open(f"mine{n}", "w") for n in range(8)]
held += [os.fdopen(fcntl.fcntl(file.fileno(), fcntl.F_DUPFD, 1000), "w") for file in held]
warmwatch.attach(tokens_per_step=8)
for _ in range(3): warmwatch.step()
warmwatch.detach()
gc.collect()
for file in held: file.write("their"); file.close()
"""
    done = train(records, body)
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.read_text() for path in records.parent.glob("mine*")] == ["theirtheir"] * 8
    folder = slots.only(records)
    assert slots.read(folder).compile.journal_dropped > 0
    assert {event["event"] for event in slots.events(folder)} == {"attach", "step"}


def test_without_on_exit_in_the_c_library_the_rest_still_works(records: Path) -> None:
    """As musl's does: the exit code stays unknown, and no message mentions it."""
    hide = """
import ctypes
class Poor(ctypes.CDLL):
    def __getattr__(self, name):
        if name == "on_exit": raise AttributeError(name)
        return super().__getattr__(name)
ctypes.CDLL = Poor
"""
    script = records.parent / "train.py"
    script.write_text(hide + STEP + "sys.exit(3)")
    done = subprocess.run(
        [sys.executable, str(script)], env=environment(records), capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (3, b"")
    assert end(slots.only(records)) == ("finished", None)
