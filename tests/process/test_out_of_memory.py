"""The kernel's own OOM killer, on a training and on a daemon in a cgroup of their own."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path

import pytest

from attacks import floods
from support.cgroups import enter, limited, possible
from support.daemon import daemon, daemon_process, status_of
from support.deployment import rendered
from support.records import environment, held, wait_until, warm, write_record
from support.users import shared
from warmwatch_monitor.model.budgets import RECORDS, RECORDS_OF_A_USER, SHOWN

pytestmark = pytest.mark.skipif(not possible(), reason="no memory cgroup can be made here")

LIMIT = 128 * 2**20
GREEDY = """
import sys, warmwatch
warmwatch.attach(run="greedy")
warmwatch.step()
print("stands", flush=True)
sys.stdin.readline()
held = bytearray()
while True:
    held += b"x" * 2**22
"""


def test_a_training_that_the_oom_killer_ended_is_reported_as_out_of_memory(memory: Path) -> None:
    with (
        limited(LIMIT) as group,
        subprocess.Popen(
            [sys.executable, "-c", GREEDY],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(WARMWATCH_DIR=str(memory)),
            preexec_fn=partial(enter, group),
        ) as training,
        daemon(memory) as url,
    ):
        assert training.stdin
        assert training.stdout
        assert training.stdout.readline() == "stands\n"
        # from when the host has looked at it, its group is followed
        wait_until(lambda: (runs := status_of(url)["runs"]) and runs[0]["ranks"][0]["process"])
        training.stdin.write("\n")
        training.stdin.flush()
        assert training.wait() == -signal.SIGKILL
        wait_until(lambda: "out of memory" in status_of(url)["runs"][0]["summary"])
        (run,) = status_of(url)["runs"]
        assert run["state"] == "lost"
        assert "the kernel killed it: out of memory" in run["ranks"][0]["evidence"]


def counters(url: str) -> dict[str, float]:
    """What the daemon counts of runs, without what it counts of itself."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as reply:
        lines = reply.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if 'run="' in line and "_total" in line)
    return {name: float(value) for name, value in pairs}


def test_a_daemon_that_the_oom_killer_ended_continues_every_counter(
    memory: Path,
) -> None:
    with held(write_record(memory, warm())):
        with limited(2**30) as group:
            started = daemon_process("--dir", str(memory), before=partial(enter, group))
            with started as (process, url):
                wait_until(lambda: counters(url))
                before = counters(url)
                limit = next(
                    file
                    for name in ("memory.max", "memory.limit_in_bytes")
                    if (file := group / name).exists()
                )
                _squeeze(limit, process)
                assert process.wait() == -signal.SIGKILL
        with daemon(memory) as url:
            # the host's own figures come with its first round
            wait_until(lambda: counters(url).keys() >= before.keys())
            after = counters(url)
    assert {name for name in before if after[name] < before[name]} == set()


def _squeeze(limit: Path, process: subprocess.Popen[str]) -> None:
    """Take the group's memory away, a part at a time, until the kernel kills what is in it.

    v1 refuses a limit below what is used; the next page that it requests is then one too many.
    """
    size = 2**30
    while process.poll() is None and size > 2**20:
        size = size * 9 // 10
        try:
            limit.write_text(str(size))
        except OSError:
            size = size * 10 // 9 + 4096


@pytest.mark.long  # 4,096 records are made and read
def test_a_daemon_at_its_global_limits_fits_the_limit_of_the_daemonset() -> None:
    """Four users have 4,096 records, of which 512 are shown; the daemon is scraped and queried."""
    daemonset = rendered({})["DaemonSet"]
    monitor = daemonset["spec"]["template"]["spec"]["containers"][0]
    mebibytes = int(monitor["resources"]["limits"]["memory"].removesuffix("Mi"))
    with shared() as directory, limited(mebibytes * 2**20) as group:
        floods.records(directory, RECORDS // RECORDS_OF_A_USER, RECORDS_OF_A_USER, journal=4_000)
        started = daemon_process("--dir", str(directory), before=partial(enter, group))
        with started as (process, url):
            wait_until(lambda: _answer(f"{url}/status?run=none") == 404)  # 503 until all are read
            for _ in range(5):
                assert sum(len(run["ranks"]) for run in status_of(url)["runs"]) == SHOWN
                with urllib.request.urlopen(f"{url}/metrics", timeout=60) as reply:
                    assert reply.read().count(b"warmwatch_steps_total{") == SHOWN
            assert process.poll() is None
            (peak,) = (
                int(file.read_text())
                for name in ("memory.peak", "memory.max_usage_in_bytes")
                if (file := group / name).exists()
            )
    # the rest is for the last hour of each rank, events, and clients
    assert peak < 0.75 * mebibytes * 2**20, f"{peak / 2**20:.0f} of {mebibytes} MiB"


def _answer(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=60) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code
