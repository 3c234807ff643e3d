"""What a stopped daemon and a stopped training report: ``python -m faults.suspended``.

SIGSTOP stops each for ``SECONDS`` (70): longer than any timeout of the code and than the least
stall limit. Another client polls the daemon without a pause, meanwhile and after.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

from support.daemon import daemon_process
from support.records import wait_until
from support.stepping import Stepping, stepping

SECONDS = float(os.environ.get("SECONDS", "70"))


def main() -> None:
    """Both, one after the other."""
    with ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm"))
        errors = Path(stack.enter_context(tempfile.TemporaryDirectory()), "errors")
        training = stack.enter_context(stepping(Path(place), errors))
        training.step(10)
        process, url = stack.enter_context(daemon_process("--dir", place))
        wait_until(lambda: _get(url)["runs"])
        for line in chain(_daemon(process.pid, url, training), _training(url, training)):
            print(line, flush=True)


def _daemon(pid: int, url: str, training: Stepping) -> Iterator[str]:
    before = _counters(url)
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        training.step(100)
    os.kill(pid, signal.SIGCONT)
    seen: dict[str, int] = {}
    until = time.monotonic() + 5
    while time.monotonic() < until:
        answer = _get(url)
        late = "late" if answer.get("late_seconds") else "fresh"
        states = ",".join(run["state"] for run in answer["runs"]) or "no run"
        down = [one["source"] for one in answer["sources"] if not one["up"]]
        key = f"{late}: {states}; down: {' '.join(down)}"
        seen[key] = seen.get(key, 0) + 1
    after = _counters(url)
    yield f"daemon stopped for {SECONDS:.0f} s; answers of the 5 s after: {seen}"
    yield f"counters that fell: {[one for one in after if after[one] < before.get(one, 0)]}"
    yield f"steps: {training.steps} marked, {_rank(url)['steps']} reported"


def _training(url: str, training: Stepping) -> Iterator[str]:
    os.kill(training.process.pid, signal.SIGSTOP)
    stopped, last = time.monotonic(), ""
    while time.monotonic() < stopped + SECONDS:
        rank = _rank(url)
        words = next((one for one in rank["evidence"] if "stopped" in one), "nothing of it")
        if (shown := f"{rank['state']}: {words}") != last:
            last = shown
            yield f"training stopped for {time.monotonic() - stopped:.1f} s: {shown}"
        time.sleep(0.1)
    os.kill(training.process.pid, signal.SIGCONT)
    continued = time.monotonic()
    training.step(10)
    wait_until(lambda: _rank(url)["state"] not in ("stalled", "lost"))
    yield f"continued: {_rank(url)['state']} after {time.monotonic() - continued:.1f} s"


def _rank(url: str) -> Any:
    return _get(url)["runs"][0]["ranks"][0]


def _get(url: str) -> Any:
    with urllib.request.urlopen(f"{url}/status", timeout=300) as reply:
        return json.load(reply)


def _counters(url: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/metrics", timeout=300) as reply:
        lines = reply.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs if "_total" in name}


if __name__ == "__main__":
    sys.exit(main())
