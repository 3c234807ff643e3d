"""Timeouts hold whatever is read: a record directory on a file system that never answers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.hung import hung
from support.records import environment, held, warm, write_record
from warmwatch_monitor.base.settings import Address
from warmwatch_monitor.base.timeouts import within
from warmwatch_monitor.client.daemon import Daemon

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
PATIENCE = 120  # of a loaded machine; without a timeout they never end


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "records"
    place.mkdir()
    with hung(place) as there:
        if not there:
            pytest.skip("FUSE cannot be mounted here")
        yield place


def start(*arguments: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "warmwatch_monitor", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**variables),
    )


_SIGNALLED = """
import os, signal, sys
from warmwatch_monitor.base.timeouts import within
within(0.05, lambda: open(sys.argv[1]), None)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
os.kill(os.getpid(), signal.SIGUSR1)
print(signal.sigtimedwait([signal.SIGUSR1], 60).si_signo == signal.SIGUSR1, flush=True)
os._exit(0)
"""


def test_a_hung_read_consumes_no_signal_that_the_command_waits_for(tmp_path: Path) -> None:
    """``run`` waits for signals; one that another thread took would stop or end it instead."""
    os.mkfifo(tmp_path / "fifo")
    command = [sys.executable, "-c", _SIGNALLED, str(tmp_path / "fifo")]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=False, env=environment()
    )
    assert (done.returncode, done.stdout) == (0, "True\n")


@root
@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("wait", "--timeout", "1"), 124, "the records cannot be read: no answer for"),
        (("status",), 6, "their records cannot be read: no answer for"),
        (("doctor",), 1, "the records could not be read within 1 s"),
    ],
)
def test_a_command_ends_in_time(
    directory: Path, arguments: tuple[str, ...], code: int, expected: str
) -> None:
    process = start(*arguments, "--dir", str(directory))
    try:
        output, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == code, output + errors
    assert expected in output + errors


@pytest.mark.slow
@root
def test_ctrl_c_ends_a_wait(directory: Path) -> None:
    process = start("wait", "--dir", str(directory))
    try:
        assert process.stderr is not None
        assert "waiting" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    finally:
        process.kill()
        process.communicate()


def test_a_watch_ends_when_its_output_is_closed(tmp_path: Path) -> None:
    """As after ``| head -3``: it prints only on a change, so no write would fail."""
    with held(write_record(tmp_path, warm())):
        process = start("status", "--watch", "--dir", str(tmp_path))
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            process.stdout.close()
            process.wait(PATIENCE)
        finally:
            process.kill()


def test_a_call_returns_or_raises_and_a_hung_one_is_abandoned() -> None:
    answers = threading.Event()
    assert within(60, lambda: 7, 0) == 7
    with pytest.raises(OSError, match="gone"):
        within(60, _fail, None)
    began = time.monotonic()
    assert within(0.05, lambda: answers.wait(60), None) is None
    assert time.monotonic() - began < 50
    answers.set()


def _fail() -> None:
    raise OSError("gone")


def test_a_requested_name_that_is_not_utf8_is_no_error_of_the_command() -> None:
    Daemon(Address("127.0.0.1", 1)).request_run("\udcff")
