"""The daemon beside nvitop-exporter; ``python -m benchmarks.beside_nvitop``.

Both poll the GPU once a second, the daemon also its records, and both are scraped once a second at
the same time, while one attached training runs. The daemon polls less a minute after the last
compile activity, so measuring begins then. Needs ``nvitop-exporter`` on PATH, for example in an
environment of its own. Without a GPU both read the tests' stand-in for NVIDIA's library.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack

import psutil

from benchmarks import served, standin
from benchmarks.figure import Figure

WATCHED, PAUSE = 120.0, 70.0
# a training for a machine without a GPU: ten steps a second, which leave the processors idle
PACED = """
import time, warmwatch.auto, torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
compiled = torch.compile(model, backend="eager")
for step in range(10**9):
    compiled(torch.ones(8)).sum().backward()
    optimizer.step()
    if step == 10:
        print("warm", flush=True)
    time.sleep(0.1)
"""


def measure() -> Iterator[Figure]:
    """CPU share of a core, resident memory and scrape time of both; ours limited by theirs."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        environ = {**os.environ, "WARMWATCH_DIR": place, "BENCHMARK_AGENT": "1"}
        words = ["-m", "benchmarks.gpt", "default", "100000"]
        if standin.is_needed():
            library = stack.enter_context(tempfile.TemporaryDirectory())
            environ |= standin.gpus(1, library).environment
            words = ["-c", PACED]
        command = [sys.executable, *words]
        training = subprocess.Popen(
            command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        stack.callback(training.kill)
        assert training.stdout
        training.stdout.readline()
        ours = stack.enter_context(served.daemon(environ, "--interval", "1"))
        port = served.free_port()
        peer = subprocess.Popen(
            ["nvitop-exporter", "-p", str(port), "--interval", "1"], env=environ
        )
        stack.callback(peer.kill)
        address = f"127.0.0.1:{port}"
        _wait(address)
        yield from _compare((ours.pid, ours.address), (peer.pid, address))


def _compare(*both: tuple[int, str]) -> Iterator[Figure]:
    _scrape_for(PAUSE, both)
    processes = [psutil.Process(pid) for pid, _ in both]
    before, began = [sum(p.cpu_times()[:2]) for p in processes], time.monotonic()
    took = _scrape_for(WATCHED, both)
    passed = time.monotonic() - began
    shares = [
        (sum(p.cpu_times()[:2]) - was) / passed for p, was in zip(processes, before, strict=True)
    ]
    resident = [p.memory_info().rss / 1e6 for p in processes]
    scrape = [1e3 * statistics.median(times) for times in took]
    for what, (mine, theirs), unit, limit in (
        ("share of a core", shares, "", 1.0),
        ("resident memory", resident, " MB", 1.3),
        ("scrape, median", scrape, " ms", None),
    ):
        yield Figure(
            name=f"daemon / nvitop-exporter: {what}",
            value=mine / theirs,
            limit=limit,
            detail=f"{mine:.4g}{unit} over {theirs:.4g}{unit}",
        )


def _scrape_for(seconds: float, both: tuple[tuple[int, str], ...]) -> list[list[float]]:
    took: list[list[float]] = [[] for _ in both]
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for times, (_, address) in zip(took, both, strict=True):
            began = time.perf_counter()
            _get(address)
            times.append(time.perf_counter() - began)
        time.sleep(1)
    return took


def _wait(address: str) -> None:
    while True:
        try:
            _get(address)
        except OSError:
            time.sleep(0.2)
        else:
            return


def _get(address: str) -> None:
    with urllib.request.urlopen(f"http://{address}/metrics") as reply:
        reply.read()


if __name__ == "__main__":
    missed = 0
    for figure in measure():
        print(figure, flush=True)
        missed += not figure.met
    sys.exit(missed > 0)
