"""The daemon with 512 live records on one host, all of which change, scraped every second.

One process writes and holds the records, because only the cost of the daemon is measured. They step
ten times a second, and the daemon polls five times a second.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psutil

from benchmarks.figure import Figure
from benchmarks.served import daemon

RECORDS, SCRAPES = 512, 40
_WRITE = """
import fcntl, mmap, os, sys, time
from pathlib import Path
from warmwatch.shared import record
from support import records
held = []
for rank in range(int(sys.argv[2])):
    slot = records.warm(rank=rank, world_size=int(sys.argv[2]))
    file = (records.write_record(Path(sys.argv[1]), slot, name=str(rank)) / record.SLOT).open("r+b")
    fcntl.lockf(file, fcntl.LOCK_EX)
    held.append((file, record.hot_words(mmap.mmap(file.fileno(), 0))))
print("held", flush=True)
steps = slot.steps.steps
while True:
    steps += 1
    now = time.monotonic_ns()
    for _, hot in held:
        hot[1], hot[0] = now, steps
    time.sleep(0.1)
"""


@contextmanager
def moving(place: str, ranks: int) -> Iterator[None]:
    """Live records in ``place``, all of which step."""
    command = [sys.executable, "-c", _WRITE, place, str(ranks)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout
            assert writer.stdout.readline() == "held\n"
            yield
        finally:
            writer.kill()


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        state = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(moving(place, RECORDS))
        environ = {**os.environ, "WARMWATCH_DIR": place, "WARMWATCH_STATE": state}
        served = stack.enter_context(daemon(environ, "--gpu-interval", "off"))
        while served.ask("/metrics").count(b"warmwatch_steps_total{") != RECORDS:
            time.sleep(0.5)
        process = psutil.Process(served.pid)
        before, began, spent = sum(process.cpu_times()[:2]), time.monotonic(), []
        for _ in range(SCRAPES):
            sent = time.perf_counter()
            body = served.ask("/metrics")
            spent.append((time.perf_counter() - sent) * 1e3)
            time.sleep(1)
        share = (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - began)
        spent.sort()
        yield Figure(
            name=f"many: /metrics of {RECORDS} records, slowest of {SCRAPES}, ms",
            value=spent[-1],
            limit=150,
            detail=f"median {spent[SCRAPES // 2]:.0f} ms, {len(body) / 1e6:.1f} MB",
        )
        yield Figure(name=f"many: share of a core, {RECORDS} records", value=share)
        resident = process.memory_info().rss / 1e6
        yield Figure(name="many: resident memory, MB", value=resident)
