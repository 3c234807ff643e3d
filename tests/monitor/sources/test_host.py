"""The host source, on real process trees: CPU, memory, and compile workers that work or wait."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from support.records import wait_until
from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.sources import proc
from warmwatch_monitor.sources.host import HostSource

# A "training" that starts a pool as torch does; each word sets what one of its workers does.
TRAINING = """
import subprocess, sys
subprocess.Popen([sys.executable, sys.argv[1], "--kind=fork", *sys.argv[2:]])
sys.stdin.read()
"""
POOL = """
import os, subprocess, sys, time
for work in sys.argv[2:]:
    if os.fork() == 0:
        if work == "busy":
            while True: pass
        if work == "tool":
            subprocess.run([sys.executable, "-c", "while True: pass"])
        if work == "ptxas":
            subprocess.run([sys.argv[0] + ".ptxas/ptxas"])
        if work == "short":
            burn = "import os, sys, time\\n"
            burn += "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\\n"
            burn += "while time.process_time() < 1.5: pass"
            subprocess.run([sys.executable, "-c", burn, sys.argv[0] + ".go"])
        time.sleep(600)
time.sleep(600)
"""


def script(folder: Path) -> Path:
    """The pool's main module. A ``short`` tool works once that name and ``.go`` is there."""
    return folder / "torch" / "_inductor" / "compile_worker" / "__main__.py"


@contextmanager
def training(folder: Path, *workers: str) -> Iterator[int]:
    """Pid of a process with a compile pool of ``workers``, all of it gone afterwards."""
    pool = script(folder)
    pool.parent.mkdir(parents=True)
    pool.write_text(POOL)
    compiler = Path(f"{pool}.ptxas", "ptxas")
    compiler.parent.mkdir()
    compiler.write_text("#!/bin/sh\nwhile :; do :; done\n")
    compiler.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINING, str(pool), *workers], stdin=subprocess.PIPE
    )
    watched = psutil.Process(process.pid)
    expected = 1 + len(workers) + sum(work in ("tool", "short", "ptxas") for work in workers)
    try:
        wait_until(lambda: len(watched.children(recursive=True)) == expected)
        yield process.pid
    finally:
        for child in watched.children(recursive=True):
            child.kill()
        process.kill()
        process.communicate()


def host(now: list[float]) -> HostSource:
    return HostSource(clock=Clock(monotonic_ns=lambda: int(now[0] * 1e9)))


def test_a_process_is_read_with_its_cpu_time_and_memory() -> None:
    now = [0.0]
    source = host(now)
    first = source.read([os.getpid()])[os.getpid()]
    assert first.resident_bytes > 5_000_000
    assert first.cpu_ratio is None
    target = sum(os.times()[:2]) + 0.2
    while sum(os.times()[:2]) < target:
        pass
    now[0] = 1.0
    second = source.read([os.getpid()])[os.getpid()]
    assert second.cpu_seconds >= first.cpu_seconds + 0.15
    assert second.cpu_ratio == pytest.approx(second.cpu_seconds - first.cpu_seconds)


def test_the_wait_for_a_cpu_is_a_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the last walk's time, at first of the process's whole life, which is no negative time."""
    now, queued = [100.0], [1e-3]
    monkeypatch.setattr(proc, "queued_seconds", lambda _: queued[0])
    source = host(now)
    first = source.read([os.getpid()])[os.getpid()]
    assert 0 < (first.queued_ratio or 0) < 0.01
    now[0], queued[0] = 110.0, 2.001
    second = source.read([os.getpid()])[os.getpid()]
    assert second.queued_seconds == 2.001
    assert second.queued_ratio == pytest.approx(0.2)
    now[0] = 120.0
    assert source.read([os.getpid()])[os.getpid()].queued_ratio == 0  # it slept
    assert second.cpus == len(os.sched_getaffinity(0))


def test_a_process_that_is_gone_is_absent() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    source = host([0.0])
    assert set(source.read([child.pid, os.getpid()])) == {child.pid, os.getpid()}
    child.communicate()
    assert set(source.read([child.pid, os.getpid()])) == {os.getpid()}


def test_a_waiting_worker_is_idle_and_the_pool_s_parent_is_not_a_worker(tmp_path: Path) -> None:
    now = [0.0]
    with training(tmp_path, "idle", "idle") as pid:
        source = host(now)
        source.read([pid])
        now[0] += 10.0
        reading = source.read([pid])[pid]
    assert (reading.workers_busy, reading.workers_idle) == (0, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "work",
    [
        "busy",
        pytest.param("tool", marks=pytest.mark.long),
        pytest.param("short", marks=pytest.mark.long),
    ],
)
def test_a_worker_is_busy_if_it_or_its_tool_uses_cpu(tmp_path: Path, work: str) -> None:
    """``short``: the tool ends before the second poll; its time is in the worker's child time."""
    now = [0.0]
    with training(tmp_path, "idle", work) as pid:
        source = host(now)
        source.read([pid])
        before = cpu_of_tree(pid)
        script(tmp_path).with_suffix(".py.go").touch()
        wait_until(lambda: cpu_of_tree(pid) > before + 0.7)
        if work == "short":
            wait_until(lambda: len(psutil.Process(pid).children(recursive=True)) == 3)
        now[0] += 10.0
        reading = source.read([pid])[pid]
    assert (reading.workers_busy, reading.workers_idle) == (1, 1)


def cpu_of_tree(pid: int) -> float:
    """Includes ended children: a child may end between two polls."""
    spent = 0.0
    for child in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            spent += sum(child.cpu_times()[:4])
    return spent


@pytest.mark.slow
def test_a_compiler_below_a_compile_worker_is_not_one_that_pytorch_does_not_report(
    tmp_path: Path,
) -> None:
    with training(tmp_path, "idle", "ptxas") as pid:

        def ptxas(root: int) -> list[bool | None]:
            """Whether each one below ``root`` is busy."""
            return [one.busy for one in source.read([root])[root].compilers if one.name == "ptxas"]

        source = HostSource()
        wait_until(lambda: ptxas(pid) == [True])
        assert source.read([pid])[pid].compiling is None
        (pool,) = psutil.Process(pid).children()
        worker = next(child for child in pool.children() if child.children())
        source = HostSource()  # of the worker itself, which is below no pool then
        wait_until(lambda: ptxas(worker.pid) == [True])
        found = source.read([worker.pid])[worker.pid].compiling
        assert found is not None
        assert found.since_ns <= found.busy_ns <= found.read_ns
