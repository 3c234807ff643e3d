"""The host and the threads of a rank: real readings, published if known."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support import builders as b
from support import sources
from support.documents import status
from warmwatch_monitor.figures.machine import Host
from warmwatch_monitor.metrics import render
from warmwatch_monitor.model.snapshot import Snapshot
from warmwatch_monitor.sources import host, listed
from warmwatch_monitor.sources.host import HostSource, read_machine

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
