"""The wall clock of a daemon, or of a training, set back and forth while both run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.daemon import daemon_process
from support.records import (
    compiling,
    environment,
    held,
    update,
    wait_until,
    warm,
    write_record,
)
from support.wall_clock import WallClock
from warmwatch_monitor.sources.records.source import RecordsSource

HOUR, DAY = 3600, 86_400
_GROWS = re.compile(r"^\w+_(total|count|sum|bucket)\b")
SETTINGS = (HOUR, -HOUR, 30 * DAY, -30 * DAY, 0)


@pytest.fixture(name="wall", scope="module")
def _wall(tmp_path_factory: pytest.TempPathFactory) -> WallClock:
    return WallClock(tmp_path_factory.mktemp("wall"))


class Daemon:
    """A daemon whose wall clock the test sets."""

    def __init__(self, url: str, wall: WallClock) -> None:
        self.url, self._wall = url, wall

    def get(self, path: str = "/status") -> Any:
        with urllib.request.urlopen(self.url + path, timeout=300) as reply:
            return json.load(reply)

    def series(self) -> dict[str, float]:
        """Every series, by name and labels."""
        with urllib.request.urlopen(self.url + "/metrics", timeout=300) as reply:
            lines = reply.read().decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def counters(self) -> dict[str, float]:
        """Those that only grow."""
        return {name: value for name, value in self.series().items() if _GROWS.search(name)}

    def ages(self) -> dict[str, float]:
        """How long ago each timestamp of a run was by the daemon's time, as in the rules."""
        series = self.series()
        now = series["warmwatch_time_seconds"]
        stamps = (name for name in series if "_timestamp_seconds{" in name and "run=" in name)
        return {name: now - series[name] for name in stamps}

    def processes(self) -> set[str]:
        """Of which runs it counts what the process uses."""
        used = "warmwatch_process_cpu_seconds_total"
        names = (name for name in self.counters() if name.startswith(used))
        return {run[1] for name in names if (run := re.search(r'run="(\w+)"', name))}

    def set(self, seconds: int) -> None:
        """Set its clock, and wait until it has looked by it."""
        before = self.get()["at"]
        self._wall.set(seconds)
        if seconds:
            wait_until(lambda: abs(self.get()["at"] - before) > HOUR / 2)
        else:
            wait_until(lambda: self.get()["at"] != before)


@contextmanager
def watching(directory: Path, wall: WallClock) -> Iterator[Daemon]:
    wall.set(0)
    arguments = ("--dir", str(directory), "--interval", "0.05")
    with daemon_process(*arguments, **wall.environment) as (_, url):
        watched = Daemon(url, wall)
        wait_until(lambda: watched.get()["at"])
        yield watched


def test_no_counter_falls_and_no_state_jumps_when_the_daemons_clock_is_set(
    memory: Path, wall: WallClock
) -> None:
    with (
        held(write_record(memory, warm("steady"), name="steady")),
        held(write_record(memory, compiling("busy"), name="busy")),
        watching(memory, wall) as daemon,
    ):
        wait_until(lambda: len(daemon.get()["runs"]) == 2)
        # the host's own figures, and which process is whose, come with its rounds
        wait_until(lambda: _all_up(daemon.get()) and daemon.processes() == {"steady", "busy"})
        before, states = daemon.counters(), _states(daemon.get())
        ages = daemon.ages()
        assert {name.partition("{")[0] for name in ages} >= {
            "warmwatch_state_start_timestamp_seconds",
            "warmwatch_run_compiling_start_timestamp_seconds",
        }
        for seconds in SETTINGS:
            daemon.set(seconds)
            later = daemon.ages()
            assert later.keys() == ages.keys()
            assert all(ages[name] - 1 < age < ages[name] + HOUR / 2 for name, age in later.items())
            after = daemon.counters()
            assert after.keys() == before.keys()
            assert {name for name in after if after[name] < before[name]} == set()
            answer = daemon.get()
            assert _states(answer) == states == {"busy": "compiling", "steady": "warm"}
            assert _all_up(answer)
            before = after


def _all_up(answer: Any) -> bool:
    return all(source["up"] for source in answer["sources"] if source["source"] != "nvml")


def _states(answer: Any) -> dict[str, str]:
    return {run["run"]: run["state"] for run in answer["runs"]}


@pytest.mark.parametrize("seconds", [-DAY, DAY])
def test_a_wait_ends_even_if_the_clock_is_set_during_it(
    memory: Path, wall: WallClock, seconds: int
) -> None:
    """By the daemon, and by the command that polls it."""
    folder = write_record(memory, compiling())
    with held(folder), watching(memory, wall) as daemon:
        wait_until(lambda: daemon.get()["runs"])
        answers: list[Any] = []
        asking = threading.Thread(
            target=lambda: answers.append(daemon.get("/status?wait=warm&timeout=3000"))
        )
        asking.start()
        command = ("wait", "--timeout", "3000", "--address", daemon.url.removeprefix("http://"))
        with subprocess.Popen(
            [sys.executable, "-m", "warmwatch_monitor", *command],
            env=environment(),
            stderr=subprocess.PIPE,
            text=True,
        ) as waiter:
            assert waiter.stderr
            assert "compiling" in waiter.stderr.readline()
            daemon.set(seconds)
            update(folder, warm())
            asking.join()
            assert answers[0]["reached"]
            assert waiter.wait() == 0
    wall.set(0)


def test_a_training_whose_own_clock_is_set_keeps_its_durations(
    memory: Path, wall: WallClock
) -> None:
    program = """
import sys, warmwatch
warmwatch.attach(run="t")
warmwatch.step()
print("stepped", flush=True)
for line in sys.stdin:
    warmwatch.step()
    print("stepped", flush=True)
"""
    wall.set(0)
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(WARMWATCH_DIR=str(memory), **wall.environment),
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == "stepped\n"
        for seconds in SETTINGS:
            wall.set(seconds)
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "stepped\n"
        (reading,) = RecordsSource([str(memory)], retention=900).read().records
        assert reading.slot.steps.steps == 1 + len(SETTINGS)
        assert 0 < reading.slot.steps.last_duration_ns < HOUR * 10**9
        assert reading.slot.clean_sum_ns < HOUR * 10**9
        process.kill()
