"""The daemon beside 64 ranks of one host that step 1,000 times a second each.

One process writes all of them, as their agents would: the words of a step stored into each mapped
slot, the length of the step into its histogram. The daemon's CPU time is taken over a fixed time on
the clock, scraped every 15 s as by a Prometheus; the result also has the real rate of the steps.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack

import psutil

from benchmarks.figure import Figure
from benchmarks.served import Daemon, daemon

RANKS, RATE, SECONDS, SCRAPE = 64, 1000, 30, 15
WRITE = """
import fcntl, mmap, sys, time
from pathlib import Path
from warmwatch.shared import record
from support import records
place, ranks, rate = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
held = []
for rank in range(ranks):
    slot = records.warm(rank=rank, world_size=ranks)
    file = (records.write_record(place, slot, name=str(rank)) / record.SLOT).open("r+b")
    fcntl.lockf(file, fcntl.LOCK_EX)
    image = mmap.mmap(file.fileno(), 0)
    held.append((file, record.hot_words(image), record.histograms(image)[0]))
print("held", flush=True)
steps, due, bin = slot.steps.steps, time.monotonic(), 48
while True:
    steps += 1
    now = time.monotonic_ns()
    for _, hot, clean in held:
        hot[2] = 1_000_000
        clean[bin] += 1
        hot[1], hot[0] = now, steps
    due = max(due + 1 / rate, time.monotonic() - 1)
    time.sleep(max(0.0, due - time.monotonic()))
"""


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place, ExitStack() as stack:
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITE, place, str(RANKS), str(RATE)],
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(writer.kill)
        assert writer.stdout
        assert writer.stdout.readline() == "held\n"
        environ = {**os.environ, "WARMWATCH_DIR": place}
        served = stack.enter_context(daemon(environ, "--gpu-interval", "off"))
        while served.ask("/metrics").count(b"warmwatch_steps_total{") != RANKS:
            time.sleep(0.5)
        process = psutil.Process(served.pid)
        time.sleep(2)
        steps, spent, began = _steps(served), sum(process.cpu_times()[:2]), time.monotonic()
        for _ in range(SECONDS // SCRAPE):
            time.sleep(SCRAPE)
            served.ask("/metrics")
        elapsed = time.monotonic() - began
        share = (sum(process.cpu_times()[:2]) - spent) / elapsed
        rate = (_steps(served) - steps) / elapsed
        yield Figure(
            name=f"rapid: share of a core, {RANKS} ranks at {RATE} steps/s",
            value=share,
            limit=0.1,
            detail=f"{rate:.0f} steps/s seen of each",
        )


def _steps(served: Daemon) -> float:
    """Of rank 0, so far."""
    found = re.search(
        rb'^warmwatch_steps_total\{[^}]*rank="0"[^}]*\} (\S+)', served.ask("/metrics"), re.M
    )
    assert found
    return float(found[1])
