"""The daemon under load: 1,000 requests a second by wrk, and 5,000 that wait for one event.

``LOAD_SECONDS`` is the time of the requests to each path, and the time over which the waiting
requests begin. wrk must be installed. One process holds eight records that all change, and the
daemon polls them five times a second, the default.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import selectors
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import psutil

from benchmarks.figure import Figure
from benchmarks.many import moving
from benchmarks.served import Daemon, daemon
from support.records import compiling, held, update, warm, write_record

RANKS, RATE, CONNECTIONS, WAITERS = 8, 1000, 100, 5000
SECONDS = int(os.environ.get("LOAD_SECONDS", "60"))
INTERVAL = 0.2
_PACE = "function delay() return {pause} end\n"
_SETTLE_SECONDS = 5.0


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        stack.enter_context(moving(place, RANKS))
        environ = {**os.environ, "WARMWATCH_DIR": place, "WARMWATCH_OBSERVE": "off"}
        served = stack.enter_context(daemon(environ, "--gpu-interval", "off"))
        while served.ask("/metrics").count(b"warmwatch_steps_total{") != RANKS:
            time.sleep(0.5)
        for path in ("/metrics", "/status"):
            with _rhythm(served) as looks:
                yield from _requests(served, path, Path(place))
            gaps = [after - before for before, after in pairwise(looks)]
            yield Figure(
                name=f"load: longest gap between two polls, load on {path}, s",
                value=max(gaps),
                limit=2 * INTERVAL,
                detail=f"{len(gaps)} gaps",
            )
    yield from _waiters()


def _requests(served: Daemon, path: str, place: Path) -> Iterator[Figure]:
    """wrk sends requests at a steady rate: each connection pauses between two requests."""
    script = place / ".pace.lua"
    script.write_text(_PACE.format(pause=round(1000 * CONNECTIONS / RATE)))
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s", "--latency", "-s", str(script)]
    output = subprocess.run(
        [*command, f"http://{served.address}{path}"], capture_output=True, text=True, check=True
    ).stdout
    rate = float(re.findall(r"Requests/sec: +([\d.]+)", output)[0])
    yield Figure(
        name=f"load: {path} p99, ms",
        value=_millis(output, "99%"),
        limit=50,
        detail=f"{rate:.0f} requests/s, median {_millis(output, '50%'):.1f} ms",
    )
    errors = sum(map(int, re.findall(r"(?:connect|read|write|timeout|responses:) (\d+)", output)))
    yield Figure(name=f"load: {path} errors", value=errors, limit=0)


def _millis(output: str, share: str) -> float:
    ((value, unit),) = re.findall(rf"{share} +([\d.]+)(us|ms|s)\b", output)
    return float(value) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[unit]


@contextmanager
def _rhythm(served: Daemon) -> Iterator[list[float]]:
    """The moments at which the records were polled meanwhile."""
    looks: list[float] = []
    over = threading.Event()

    def watch() -> None:
        connection = http.client.HTTPConnection(served.address)
        while not over.wait(0.03):
            connection.request("GET", "/status")
            at = json.loads(connection.getresponse().read())["at"]
            if looks[-1:] != [at]:
                looks.append(at)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield looks
    finally:
        over.set()
        thread.join()


def _waiters() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        folder = write_record(Path(place), compiling())
        stack.enter_context(held(folder))
        environ = {**os.environ, "WARMWATCH_DIR": place, "WARMWATCH_OBSERVE": "off"}
        served = stack.enter_context(daemon(environ, "--gpu-interval", "off"))
        while not json.loads(served.ask("/status"))["compiling"]:
            time.sleep(0.1)
        process = psutil.Process(served.pid)
        before = process.memory_info().rss / 1e6
        crowd = stack.enter_context(selectors.DefaultSelector())
        began = time.monotonic()
        for number in range(WAITERS):
            time.sleep(max(0.0, began + SECONDS * number / WAITERS - time.monotonic()))
            crowd.register(stack.enter_context(_waiting(served)), selectors.EVENT_READ)
        time.sleep(_SETTLE_SECONDS)
        full = process.memory_info().rss / 1e6
        with _others(served) as spent:
            update(folder, warm())
            began = time.monotonic()
            answered, wrong = _all_answered(crowd)
        yield Figure(
            name=f"load: {WAITERS} waiters answered after the event, s",
            value=answered - began,
            limit=1,
        )
        yield Figure(name="load: waiters without the right answer", value=wrong, limit=0)
        yield Figure(
            name="load: slowest answer to others meanwhile, ms",
            value=max(spent) * 1e3,
            limit=100,
            detail=f"{len(spent)} answers",
        )
        time.sleep(_SETTLE_SECONDS)
        after = process.memory_info().rss / 1e6
        yield Figure(
            name="load: memory afterwards over before",
            value=after / before,
            limit=1.25,
            detail=f"{before:.0f} MB, {full:.0f} MB while they wait, {after:.0f} MB",
        )


def _waiting(served: Daemon) -> socket.socket:
    host, port = served.address.split(":")
    peer = socket.create_connection((host, int(port)))
    peer.sendall(
        b"GET /status?run=gpt2&wait=warm&timeout=3600 HTTP/1.1\r\n"
        b"Host: localhost\r\nConnection: close\r\n\r\n"
    )
    return peer


def _all_answered(crowd: selectors.BaseSelector) -> tuple[float, int]:
    """When the last had its answer, and how many got a wrong answer."""
    output: dict[int, bytearray] = {}
    while crowd.get_map():
        for key, _ in crowd.select():
            assert isinstance(key.fileobj, socket.socket)
            part = key.fileobj.recv(1 << 16)
            output.setdefault(key.fd, bytearray()).extend(part)
            if not part:
                crowd.unregister(key.fileobj)
    ended = time.monotonic()
    return ended, sum(b'"reached":true' not in one for one in output.values())


@contextmanager
def _others(served: Daemon) -> Iterator[list[float]]:
    """Seconds of each request of another client meanwhile."""
    spent: list[float] = []
    over = threading.Event()

    def ask() -> None:
        connection = http.client.HTTPConnection(served.address)
        while not over.is_set():
            began = time.perf_counter()
            connection.request("GET", "/status")
            connection.getresponse().read()
            spent.append(time.perf_counter() - began)
            time.sleep(0.01)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        time.sleep(0.2)
        yield spent
    finally:
        over.set()
        thread.join()
