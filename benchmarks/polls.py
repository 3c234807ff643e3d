"""CPU time of each part of the daemon's work: in one thread, on a clock that moves by a poll.

For each number of ranks, at rest and with a step every 20 ms, a process polls the records ten times
a second and answers ``/metrics`` and ``/status`` once a second. ``POLLS_AGAINST=CHECKOUT`` adds the
ratio to another checkout, which may be as old as 2026-11-22: a process of each works in turn. The
figure is the least of several rounds, so other load matters little.

As a script, with a checkout's packages and tests on the path, this file is that process.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

CASES = (("1", "rest"), ("1", "steps"), ("8", "rest"), ("8", "steps"))
PERIOD_NS, STEP_NS = 10**8, 2 * 10**7
ROUNDS, POLLS = 15, 40
OURS = re.compile("/(agent/warmwatch|monitor/warmwatch_monitor)/")
FILES = "files of ours in a poll with its answers"
# without the look at unattached processes, which takes as long as this machine has processes
TIMES_A_SECOND = {"records": 10, "publish": 10, "host": 1, "/metrics": 1}


def measure() -> Iterator[Any]:
    from benchmarks.figure import Figure

    trees = [Path(__file__).parents[1]]
    if other := os.environ.get("POLLS_AGAINST"):
        trees.append(Path(other).resolve())
    for ranks, mode in CASES:
        with ExitStack() as stack:
            measured = [_Process(stack, tree, ranks, mode) for tree in trees]
            for _ in range(ROUNDS):
                for one in measured:
                    one.go_on()
        what = f"polls: {ranks} ranks, {mode}"
        for part in (*measured[0].least, "a second"):
            took = [one.microseconds(part) for one in measured]
            yield Figure(name=f"{what}: {part}{'' if part == FILES else ', us'}", value=took[0])
            if other and part != FILES:
                detail = f"{took[0]:.0f} over {took[1]:.0f} us"
                yield Figure(name=f"{what}: {part}, ratio", value=took[0] / took[1], detail=detail)


class _Process:
    """The process of one checkout, and by part the least time that a round took."""

    def __init__(self, stack: ExitStack, tree: Path, ranks: str, mode: str) -> None:
        place = stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm"))
        path = os.pathsep.join(str(tree / name) for name in ("agent", "monitor", "tests"))
        self._process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, __file__, place, ranks, mode],
                env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        stack.callback(self._process.kill)
        self.least: dict[str, float] = {}
        self.go_on()
        self.least.clear()

    def go_on(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        while not (line := self._process.stdout.readline()).startswith("{"):
            assert line, "the process of a checkout has ended"
        for part, took in json.loads(line).items():
            self.least[part] = min(took, self.least.get(part, took))

    def microseconds(self, part: str) -> float:
        if part == "a second":
            return sum(self.least[name] * times for name, times in TIMES_A_SECOND.items())
        return self.least[part]


class _Clock:
    """Replaces the clocks of this process; CPU time counts as 0, so no budget ends."""

    def __init__(self) -> None:
        self.passed_ns, began_ns, began = 0, time.monotonic_ns(), time.time()
        time.monotonic_ns = lambda: began_ns + self.passed_ns
        time.monotonic = lambda: (began_ns + self.passed_ns) / 1e9
        time.time = lambda: began + self.passed_ns / 1e9
        time.thread_time = lambda: 0.0


class _Ranks:
    """Records that processes of their own hold, and their steps."""

    def __init__(self, place: Path, count: int) -> None:
        from support import records

        try:
            from warmwatch.shared import record
        except ImportError:  # until 2026-11-22
            from warmwatch import record  # type: ignore[attr-defined,no-redef]
        self._bin = bisect_left(record.BOUNDS_NS, STEP_NS)
        self._ring = getattr(record, "ring", None)
        self._images = []
        for rank in range(count):
            slot = records.warm(rank=rank, world_size=count)
            file = (records.write_record(place, slot, name=str(rank)) / "slot").open("r+b")
            if not os.fork():
                ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # end with the parent
                fcntl.lockf(file, fcntl.LOCK_EX)
                (place.parent / f"held{rank}").touch()
                while True:
                    signal.pause()
            image = mmap.mmap(file.fileno(), 0)
            ring = self._ring(image) if self._ring else None
            self._images.append((record.hot_words(image), record.histograms(image)[0], ring))
        while len(list(place.parent.glob("held*"))) < count:
            time.sleep(0.02)

    def step(self, now_ns: int) -> None:
        for hot, clean, ring in self._images:
            for back in reversed(range(PERIOD_NS // STEP_NS)):
                if ring is None:
                    hot[2] = STEP_NS
                else:
                    ring[hot[0] % len(ring)] = STEP_NS
                clean[self._bin] += 1
                hot[1] = now_ns - back * STEP_NS
                hot[0] += 1


class _Daemon:
    """What ``warmwatch serve`` works with, called by part."""

    def __init__(self, poller: Any, app: Any, tick: Callable[[], None]) -> None:
        self._poller, self._app, self._tick = poller, app, tick
        self._polls, self._due_ns = 0, dict[str, int]()
        self.spent: dict[str, list[float]] = {}

    def poll(self) -> None:
        self._tick()
        feeds = self._poller._feeds
        for name, feed in feeds.items():
            if name != "records" and self._due_ns.get(name, 0) <= time.monotonic_ns():
                self._due_ns[name] = time.monotonic_ns() + round(feed._interval * 1e9)
                self._time(name, feed.read)
        self._time("records", feeds["records"].read)
        self._time("publish", self._poller._publisher.publish)
        self._polls += 1
        if self._polls % 10 == 0:
            for path in ("/metrics", "/status"):
                self._time(path, lambda path=path: self._get(path))  # type: ignore[misc]

    def _time(self, part: str, call: Callable[[], object]) -> None:
        began = time.process_time()
        call()
        self.spent.setdefault(part, []).append((time.process_time() - began) * 1e6)

    def _get(self, path: str) -> None:
        """Send a request to the application, which answers without a pause."""
        headers = [(b"host", b"127.0.0.1")]
        scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "state": {}}

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b""}

        async def send(_: Any) -> None:
            pass

        try:
            self._app({**scope, "headers": headers}, receive, send).send(None)
        except StopIteration:
            return
        raise AssertionError("the application waits")


def _entered(call: Callable[[], None]) -> set[str]:
    """The files of our packages of which a function ran."""
    files = set[str]()

    def count(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and frame.f_code.co_name != "<module>" and OURS.search(name):
            files.add(name)

    sys.setprofile(count)
    call()
    sys.setprofile(None)
    return files


def _work(place: Path, ranks: int, mode: str) -> None:
    """Poll a round for each line on stdin, and print the mean of each part in microseconds."""
    os.environ |= {"WARMWATCH_DIR": str(place / "records"), "WARMWATCH_STATE": str(place / "state")}
    (place / "records").mkdir(mode=0o700)
    training, clock = _Ranks(place / "records", ranks), _Clock()
    from warmwatch_monitor.server import command
    from warmwatch_monitor.server.api.changes import Recent

    try:
        from warmwatch_monitor.server.api.app import Api as application  # noqa: N813
    except ImportError:  # until 2026-11-29
        from warmwatch_monitor.server.api.fast_path import (  # type: ignore[import-not-found,no-redef]
            create_app as application,
        )

    def tick() -> None:
        clock.passed_ns += PERIOD_NS
        if mode == "steps":
            training.step(time.monotonic_ns())

    def serve(poller: Any, *rest: Any) -> None:
        history, keeper = rest[3], rest[4]
        recent = Recent()
        for follower in (recent, history, keeper):
            if follower is not None:
                poller.follow(follower.take)
        daemon = _Daemon(poller, application(poller.latest, "0", recent, history), tick)
        for _ in range(29):
            daemon.poll()
        files = len(_entered(daemon.poll))
        for _ in sys.stdin:
            daemon.spent.clear()
            for _ in range(POLLS):
                daemon.poll()
            means = {k: sum(v) / len(v) for k, v in daemon.spent.items()}
            print(json.dumps({**means, FILES: files}), flush=True)

    command._serve = serve  # type: ignore[assignment]
    options = ["--address", "127.0.0.1:0", "--interval", "0.1", "--gpu-interval", "off"]
    command.serve.main(options, standalone_mode=True)


if __name__ == "__main__":
    _work(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
