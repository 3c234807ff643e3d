"""Which signal killed a process, seen from a process that is not its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.records import wait_until
from warmwatch_monitor.sources.records import folder
from warmwatch_monitor.sources.records.folder import ExitWatch

SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.mark.parametrize("zombie", [False, True], ids=["pidfd", "zombie"])
@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGKILL, signal.SIGTERM])
def test_the_signal_is_seen(monkeypatch: pytest.MonkeyPatch, number: int, zombie: bool) -> None:
    """By the pidfd where the kernel tells, and by the zombie in any case."""
    if zombie:
        monkeypatch.setattr(folder, "_PIDFD_GET_INFO", 0xC040FFEE)  # a kernel that has no such call
    watch = ExitWatch()
    with subprocess.Popen(SLEEPS) as child:
        watch.follow(child.pid)
        watch.follow(child.pid)
        assert watch.death(child.pid) is None
        os.kill(child.pid, number)
        wait_until(lambda: watch.death(child.pid) is not None)
        death = watch.death(child.pid)
        assert death is not None
        assert death.signal == number


def test_a_process_that_exits_was_killed_by_no_signal() -> None:
    watch = ExitWatch()
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as exits_with_1,
        subprocess.Popen(SLEEPS) as killed,
    ):
        watch.follow(exits_with_1.pid)
        watch.follow(killed.pid)
        exits_with_1.communicate()
        killed.kill()
        wait_until(lambda: watch.death(killed.pid) is not None)
        assert watch.death(exits_with_1.pid) is None


def test_a_process_that_is_gone_already_is_passed_over() -> None:
    with subprocess.Popen(["true"]) as child:
        child.wait()
        watch = ExitWatch()
        watch.follow(child.pid)
        assert watch.death(child.pid) is None


def test_no_descriptor_stays_open() -> None:
    watch = ExitWatch()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with subprocess.Popen(SLEEPS) as child:
            watch.follow(child.pid)
            child.kill()
            wait_until(lambda pid=child.pid: watch.death(pid) is not None)
    wait_until(lambda: len(list(Path("/proc/self/fd").iterdir())) <= before + 1)  # the epoll's own
