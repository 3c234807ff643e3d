"""How a process ended, seen from a process that is not its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from support.records import wait_until
from warmwatch_monitor.sources.records import folder
from warmwatch_monitor.sources.records.folder import ExitWatch

SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.mark.parametrize("zombie", [False, True], ids=["pidfd", "zombie"])
@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGKILL, signal.SIGTERM])
def test_the_signal_is_reported(monkeypatch: pytest.MonkeyPatch, number: int, zombie: bool) -> None:
    """From the pidfd if the kernel supports it, and always from the zombie."""
    if zombie:
        monkeypatch.setattr(folder, "_PIDFD_GET_INFO", 0xC040FFEE)  # a kernel that has no such call
    watch = ExitWatch()
    with subprocess.Popen(SLEEPS) as child:
        ending = watch.follow(child.pid)
        assert ending is not None
        assert watch.follow(child.pid) is ending
        assert ending.death is None
        os.kill(child.pid, number)
        wait_until(lambda: ending.death is not None)
        assert ending.death is not None
        assert ending.death.signal == number


@pytest.mark.parametrize("reaped", [False, True], ids=["hidden", "reaped during the read"])
def test_the_signal_is_reported_once_the_parent_reaps_if_the_zombie_does_not_show_it(
    monkeypatch: pytest.MonkeyPatch, reaped: bool
) -> None:
    """A zombie of another user shows 0; its parent may reap it at any moment."""
    if not _reports_exits():
        pytest.skip("the kernel reports the status of a zombie only")
    watch, read = ExitWatch(), threading.Event()
    with subprocess.Popen(SLEEPS) as child:

        def zombie_status(_pid: int) -> int | None:
            if reaped:
                child.wait()
            read.set()
            return None if reaped else 0

        monkeypatch.setattr(folder, "_zombie_status", zombie_status)
        ending = watch.follow(child.pid)
        assert ending is not None
        child.kill()
        assert read.wait(600)
        ended_ns = time.monotonic_ns()
        if not reaped:
            assert watch.follow(child.pid) is ending
            assert ending.death is None
        child.wait()
        wait_until(lambda: ending.death is not None)
        assert ending.death is not None
        assert ending.death.signal == signal.SIGKILL
        assert ending.death.at_ns < ended_ns  # the end, not the reaping


def _reports_exits() -> bool:
    """Whether a descriptor has the status of a process that was reaped: from Linux 6.15 on."""
    with subprocess.Popen(["true"]) as child:
        descriptor = os.pidfd_open(child.pid)
        child.wait()
        try:
            return folder._exit_info(descriptor) == folder._ExitInfo(True, 0)
        finally:
            os.close(descriptor)


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_is_reported_but_not_the_0_of_a_zombie_that_may_be_anothers(
    monkeypatch: pytest.MonkeyPatch, code: int, hidden: bool
) -> None:
    if hidden:
        monkeypatch.setattr(folder, "_PIDFD_GET_INFO", 0xC040FFEE)  # a kernel that has no such call
    elif not _reports_exits():
        pytest.skip("the kernel reports the status of a zombie only")
    watch = ExitWatch()
    exits = [sys.executable, "-c", f"input(); raise SystemExit({code})"]
    with (
        subprocess.Popen(exits, stdin=subprocess.PIPE) as child,
        subprocess.Popen(SLEEPS) as later,
    ):
        ending, other = watch.follow(child.pid), watch.follow(later.pid)
        assert ending is not None
        assert other is not None
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.flush()
        wait_until(lambda: ending.at_ns > 0)
        if not hidden:
            child.wait()
            wait_until(lambda: ending.death is not None)
        later.kill()  # one thread takes both, in turn
        wait_until(lambda: other.death is not None)
        reported = ending.death and (ending.death.signal, ending.death.exit_code)
        assert reported == (None if hidden and not code else (0, code))


def test_a_process_that_is_already_gone_is_skipped() -> None:
    with subprocess.Popen(["true"]) as child:
        child.wait()
        assert ExitWatch().follow(child.pid) is None


def test_a_record_is_read_although_the_kernel_allows_no_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> None:
        raise OSError(24, "too many open files")

    monkeypatch.setattr(folder.select, "epoll", refuse)
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert ExitWatch().follow(os.getpid()) is None
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_no_descriptor_and_no_thread_is_leaked() -> None:
    watch = ExitWatch()
    before, threads = len(list(Path("/proc/self/fd").iterdir())), threading.active_count()
    for _ in range(3):
        with subprocess.Popen(SLEEPS) as child:
            ending = watch.follow(child.pid)
            assert ending is not None
            child.kill()
            wait_until(lambda one=ending: one.death is not None)
    wait_until(lambda: threading.active_count() <= threads)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
