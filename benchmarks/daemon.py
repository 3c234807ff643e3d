"""The daemon beside 8 live ranks and 8 GPUs, polling at 10 Hz and scraped every second.

The ranks are real agents in real processes that mark a step every 20 ms; the GPUs are a stand-in's,
read once a second. Latencies are measured separately from the CPU share, which is that of a daemon
with one request a second.
"""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack

import psutil

from benchmarks import standin
from benchmarks.figure import Figure

GPUS = 8
RANKS, REQUESTS, WATCHED = 8, 500, 30.0
TRAIN = """
import os, sys, time, warmwatch
sys.modules.setdefault("torch", None)
warmwatch.attach(run="bench")
for _ in range(10**9):
    warmwatch.step()
    time.sleep(0.02)
"""


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        state = stack.enter_context(tempfile.TemporaryDirectory())
        environ = {**os.environ, "WARMWATCH_DIR": place, "WARMWATCH_STATE": state}
        for rank in range(RANKS):
            train = subprocess.Popen(
                [sys.executable, "-c", TRAIN],
                env={**environ, "RANK": str(rank), "WORLD_SIZE": str(RANKS)},
            )
            stack.callback(train.kill)
        serve = [sys.executable, "-m", "warmwatch_monitor", "serve"]
        daemon = subprocess.Popen(
            [*serve, "--address", "127.0.0.1:0", "--interval", "0.1"],
            env={**environ, **standin.gpus(GPUS, place).environment},
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(daemon.kill)
        assert daemon.stdout
        (port,) = map(int, re.findall(r"http://127.0.0.1:(\d+)", daemon.stdout.readline()))
        _wait_for_all(port)
        yield from _figures(port, psutil.Process(daemon.pid))


def _figures(port: int, daemon: psutil.Process) -> Iterator[Figure]:
    before, began = sum(daemon.cpu_times()[:2]), time.monotonic()
    while time.monotonic() - began < WATCHED:
        _get(port, "/metrics")
        time.sleep(1)
    share = (sum(daemon.cpu_times()[:2]) - before) / (time.monotonic() - began)
    yield Figure(
        name=f"daemon: share of a core, {RANKS} ranks, {GPUS} GPUs", value=share, limit=0.02
    )
    resident = daemon.memory_info().rss / 1e6
    yield Figure(name="daemon: resident memory, MB", value=resident, limit=80)
    for path in ("/status", "/metrics"):
        spent = sorted(_get(port, path) * 1e3 for _ in range(REQUESTS))
        median, p99 = spent[REQUESTS // 2], spent[REQUESTS * 99 // 100]
        yield Figure(
            name=f"daemon: {path} p99, ms", value=p99, limit=10, detail=f"median {median:.1f} ms"
        )


def _wait_for_all(port: int) -> None:
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        ranks = text.count("warmwatch_steps_total{")
        if (ranks, text.count("warmwatch_gpu_sm_active_ratio{")) == (RANKS, GPUS):
            return
        time.sleep(0.1)


def _get(port: int, path: str) -> float:
    """Seconds of one request on a fresh connection, as a scraper's first."""
    began = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", path)
    reply = connection.getresponse()
    reply.read()
    assert reply.status == 200
    connection.close()
    return time.perf_counter() - began
