"""Reading ``/proc``, compared with what psutil reads of the same processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from support import builders as b
from support import sources
from support.documents import status
from support.records import wait_until
from warmwatch_monitor.figures.machine import Host
from warmwatch_monitor.metrics import render
from warmwatch_monitor.model.snapshot import Snapshot
from warmwatch_monitor.sources import host, listed, proc
from warmwatch_monitor.sources.host import HostSource, read_machine

NAME = "a) b (c) with a long name"
WORK = "import os; sum(range(10**7)); os.system('true'); print('here', flush=True); input()"


def test_process_readings_equal_those_of_psutil() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WORK, "", "two words"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"here\n"
        other, pid = psutil.Process(process.pid), process.pid
        wait_until(lambda: proc.stat(pid).state == "S")
        stat, times = proc.stat(pid), other.cpu_times()
        assert (stat.parent, stat.threads) == (os.getpid(), other.num_threads())
        assert stat.cpu_seconds == pytest.approx(times.user + times.system)
        assert stat.cpu_seconds > 0
        assert stat.waited_seconds == pytest.approx(times.children_user + times.children_system)
        memory = other.memory_info()
        assert proc.memory(pid) == (memory.rss, memory.rss - memory.shared)
        assert proc.command(pid) == tuple(other.cmdline())
        assert pid in proc.pids()
        assert [*proc.ancestors(pid)] == [one.pid for one in other.parents()]
        process.communicate(b"\n")
    with pytest.raises(OSError):  # noqa: PT011 - which one depends on the moment
        proc.stat(pid)


def test_processes_that_share_a_cpu_wait_for_it() -> None:
    spin = (
        f"import os; os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}})\nwhile True: pass"
    )
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", spin]))
            stack.callback(process.kill)
        wait_until(lambda: proc.usable_cpus(process.pid) == 1)  # it may be queued before that
        wait_until(lambda: (proc.queued_seconds(process.pid) or 0.0) > 0.1)
    assert proc.queued_seconds(process.pid) is None
    assert proc.usable_cpus(process.pid) is None


def test_a_process_name_with_spaces_and_parentheses_is_read_completely(tmp_path: Path) -> None:
    sleep = shutil.which("sleep")
    assert sleep
    shutil.copy(sleep, tmp_path / NAME)
    with subprocess.Popen([tmp_path / NAME, "600"]) as process:
        wait_until(lambda: NAME in " ".join(proc.command(process.pid)))
        stat = proc.stat(process.pid)
        assert (stat.name, stat.parent) == (NAME[:15], os.getpid())
        assert proc.whole_name(process.pid, stat.name) == NAME
        assert not stat.stopped
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: proc.stat(process.pid).stopped)
        process.kill()
        wait_until(lambda: proc.stat(process.pid).state == "Z")
        assert proc.command(process.pid) == ()


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (b"python\0train.py\0\0", ("python", "train.py", "")),
        (b"ray::train step\0\0\0", ("ray::train step", "", "")),
        (b"nginx: worker process\0", ("nginx:", "worker", "process")),
        (b"bash -c x", ("bash", "-c", "x")),
        (b"", ()),
    ],
)
def test_a_command_line_is_split_at_nulls_or_else_at_spaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: bytes, parts: tuple[str, ...]
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cmdline").write_bytes(words)
    monkeypatch.setattr(proc, "PROC", str(tmp_path))
    assert proc.command(7) == parts


def test_the_list_of_ancestors_ends_at_an_unreadable_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So they do where ``hidepid`` hides the processes of other users."""
    for pid, parent in ((7, 6), (6, 5)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (sh) S {parent}{' 0' * 20}")
    monkeypatch.setattr(proc, "PROC", str(tmp_path))
    assert [*proc.ancestors(7)] == [6, 5]
    with pytest.raises(FileNotFoundError):
        next(proc.ancestors(5))


@pytest.mark.parametrize(
    ("lines", "known"),
    [
        ("MemTotal: 8 kB\nMemAvailable: 3 kB\nHugePages_Total:  0\n", (8192, 3072)),
        ("MemTotal: 8 kB\nMemAvailable: 9 kB\n", (8192, 8192)),
        ("MemTotal: 8 kB\n", None),
        ("", None),
    ],
)
def test_memory_that_the_kernel_does_not_report_is_unknown(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lines: str,
    known: tuple[int, int] | None,
) -> None:
    (tmp_path / "meminfo").write_text(lines)
    monkeypatch.setattr(proc, "PROC", str(tmp_path))
    assert proc.machine_memory() == known


def test_host_readings_equal_those_of_psutil() -> None:
    memory, kernel = proc.machine_memory(), psutil.virtual_memory()
    assert memory is not None
    assert memory[0] == kernel.total
    assert memory[1] == pytest.approx(kernel.available, rel=0.1)
    assert proc.stolen_seconds() == pytest.approx(psutil.cpu_times().steal, abs=1.0)


# The host and the threads of a rank: real readings, published if known


# of its own: in this process threads of another test may be about to end
THREADS = """
import threading
print("alone", flush=True)
input()
for _ in range(3): threading.Thread(target=threading.Event().wait, daemon=True).start()
print("together", flush=True)
input()
"""


def values(snapshot: Snapshot) -> dict[str, float]:
    text = render(snapshot, None)[0].decode()
    samples = (s for family in text_string_to_metric_families(text) for s in family.samples)
    return {s.name: s.value for s in samples if "_host_" in s.name or "_threads" in s.name}


def test_the_host_readings_match_the_kernel_s() -> None:
    read = read_machine()
    assert read is not None
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    kernel = {line[0]: int(line[1]) * 1024 for line in lines}
    assert read.memory_total_bytes == kernel["MemTotal:"]
    assert 0 < read.memory_available_bytes < read.memory_total_bytes
    assert read.cpus == os.cpu_count()
    assert read.load_1m is not None
    (stat,) = (one for one in Path("/proc/stat").read_text().splitlines() if one[:4] == "cpu ")
    stolen = int(stat.split()[8]) / os.sysconf("SC_CLK_TCK")
    assert read.stolen_seconds == pytest.approx(stolen, abs=1.0)


def test_the_threads_of_a_process_are_counted() -> None:
    source, counted = HostSource(), []
    with subprocess.Popen(
        [sys.executable, "-c", THREADS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        for word in ("alone", "together"):
            assert process.stdout.readline() == f"{word}\n"
            counted.append(source.read([process.pid])[process.pid].threads)
            process.stdin.write("\n")
            process.stdin.flush()
    assert counted == [1, 4]


def test_an_unreadable_host_is_absent_and_its_source_is_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Host:
        raise PermissionError("/proc/meminfo")

    monkeypatch.setattr(listed, "read_machine", broken)
    snapshot = sources.poller(directories=(str(tmp_path),)).poll_once()
    assert snapshot.host is None
    found = {health.source: health for health in snapshot.sources}
    assert found["records"].up
    assert (found["host"].up, found["host"].error) == (False, "PermissionError: /proc/meminfo")


def test_unknown_values_of_the_host_have_no_series_and_are_null() -> None:
    assert values(b.snapshot()) == {}
    assert status(b.snapshot())["host"] is None
    unloaded = Host(memory_total_bytes=64, memory_available_bytes=48, cpus=16)
    assert "warmwatch_host_load1" not in values(b.snapshot(host=unloaded))


def test_gpus_are_counted_on_the_bus_without_their_driver(tmp_path: Path) -> None:
    for number, (vendor, kind) in enumerate(
        [
            ("0x10de", "0x030200"),  # a GPU without a display
            ("0x10de", "0x030000"),  # one with
            ("0x10de", "0x040300"),  # its audio
            ("0x10de", "0x068000"),  # an NVSwitch
            ("0x1a03", "0x030000"),  # the board's own display
        ]
    ):
        device = tmp_path / f"0000:0{number}:00.0"
        device.mkdir()
        (device / "vendor").write_text(f"{vendor}\n")
        (device / "class").write_text(f"{kind}\n")
    (tmp_path / "gone").mkdir()
    assert host.pci_gpus(str(tmp_path)) == 2
    assert host.pci_gpus(str(tmp_path / "none")) is None
