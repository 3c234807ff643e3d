"""Trainings and daemons in namespaces of their own, as containers have them: real ones."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support import slots
from support.daemon import daemon
from support.namespaces import clocks, possible, uptime
from support.records import environment, wait_until
from warmwatch_monitor.sources.records.source import RecordsReading, RecordsSource

# It steps on request, and a child of it never reads the requests.
TRAINING = """
import sys, warmwatch
warmwatch.attach(run="t")
warmwatch.step()
print("stands", flush=True)
for line in sys.stdin:
    warmwatch.step()
    print("stands", flush=True)
"""
AHEAD = 100_000


def needs(*flags: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not possible(*flags), reason=f"no `unshare {' '.join(flags)}` here")


class Training:
    """A process in a namespace that marks a step on request."""

    def __init__(self, process: subprocess.Popen[str], directory: Path) -> None:
        self.process = process
        self._stands()
        self.folder = slots.only(directory)

    def step(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self._stands()

    def _stands(self) -> None:
        assert self.process.stdout
        assert self.process.stdout.readline() == "stands\n"


@contextmanager
def training(directory: Path, *flags: str) -> Iterator[Training]:
    """A training, in the namespaces that ``unshare`` makes by ``flags``."""
    before = ("unshare", *flags) if flags else ()
    with subprocess.Popen(
        [*before, sys.executable, "-c", TRAINING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(WARMWATCH_DIR=str(directory)),
    ) as process:
        try:
            yield Training(process, directory)
        finally:
            process.kill()


def read(directory: Path) -> RecordsReading:
    return RecordsSource([str(directory)], retention=900).read()


def command(*words: str, within: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """The output of ``warmwatch`` in the namespaces of ``within``."""
    return subprocess.run(
        [*within, sys.executable, "-m", "warmwatch_monitor", *words],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )


@needs(*clocks(AHEAD))
def test_a_training_with_another_clock_is_refused_with_a_message_and_judged_in_its_namespace(
    memory: Path,
) -> None:
    """Durations would be negative: it was "-99998.1 s" once."""
    with training(memory, *clocks(AHEAD)) as started:
        reading = read(memory)
        assert reading.records == ()
        (refusal,) = reading.refusals
        assert "another time namespace, whose clock is 100,000 s ahead of this one's" in (
            refusal.reason
        )
        here = command("status", "--json", "--dir", str(memory))
        assert not re.search(r"-\d", json.loads(here.stdout)["summary"])
        pid = slots.read(started.folder).identity.pid
        there = ("nsenter", "-T", "-t", str(pid))
        beside = command("status", "--json", "--dir", str(memory), within=there)
        (run,) = json.loads(beside.stdout)["runs"]
        assert (run["state"], run["ranks"][0]["steps"]) == ("warming", 1)


@needs(*uptime(5))
def test_a_daemon_whose_clock_is_behind_the_training_s_reports_it(memory: Path) -> None:
    with training(memory):
        output = command("doctor", "--dir", str(memory), within=("unshare", *uptime(5)))
    assert re.search(r"another time namespace, whose clock is [\d,]+ s ahead", output.stdout)


def _numbers(answer: Any) -> Iterator[tuple[str, float]]:
    if isinstance(answer, dict):
        for key, value in answer.items():
            if isinstance(value, int | float):
                yield key, value
            else:
                yield from _numbers(value)
    elif isinstance(answer, list):
        for value in answer:
            yield from _numbers(value)


_BOOTED = f"""
import json, subprocess, sys, urllib.request
from pathlib import Path
from support.daemon import daemon
from support.records import environment, wait_until
place = Path(sys.argv[1])
with daemon(place) as url:
    training = subprocess.Popen([sys.executable, "-c", {TRAINING!r}],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=environment(WARMWATCH_DIR=str(place)))
    training.stdout.readline()
    def get():
        with urllib.request.urlopen(url + "/status") as reply:
            return json.load(reply)
    for _ in range(4):
        training.stdin.write("\\n"); training.stdin.flush(); training.stdout.readline()
    def all_five(found):
        return found["runs"] and found["runs"][0]["ranks"][0]["steps"] == 5
    wait_until(lambda: all_five(get()))
    answer = get()
    with urllib.request.urlopen(url + "/metrics") as reply:
        metrics = reply.read().decode()
    base = [sys.executable, "-m", "warmwatch_monitor"]
    alone = subprocess.run([*base, "status", "--json", "--dir", str(place)], env=environment(),
        capture_output=True, text=True)
    doctor = subprocess.run([*base, "doctor", "--dir", str(place)], env=environment(),
        capture_output=True, text=True)
    training.kill(); training.wait()
    wait_until(lambda: get()["runs"][0]["state"] == "lost")
    print(json.dumps([float(open("/proc/uptime").read().split()[0]), answer, metrics,
        json.loads(alone.stdout), doctor.stdout]))
"""


@needs(*uptime(5))
def test_a_host_that_has_just_booted_changes_no_result(memory: Path) -> None:
    """Its monotonic clock is near 0, which stands for "not yet" in a record."""
    done = subprocess.run(
        ["unshare", *uptime(2), sys.executable, "-c", _BOOTED, str(memory)],
        env=environment(PYTHONPATH=os.pathsep.join(sys.path)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    up, answer, metrics, alone, doctor = json.loads(done.stdout)
    for output in (answer, alone):
        (run,) = output["runs"]
        assert (run["state"], run["ranks"][0]["steps"]) == ("eager", 5)
        assert output["refusals"] == []
        assert [pair for pair in _numbers(output) if pair[1] < 0] == []
        reported = [
            pair for pair in _numbers(run) if "limit" not in pair[0]
        ]  # which are no lengths
        seconds = [value for key, value in reported if key.endswith("seconds")]
        assert all(value <= up for value in seconds)
    assert not re.search(r"^warmwatch_\S+ -", metrics, re.MULTILINE)
    assert "1 of living processes" in doctor
    assert "another" not in doctor


@needs("-p", "--fork", "--mount-proc")
def test_a_training_in_another_pid_namespace_is_alive_and_lost_once_it_is_killed(
    memory: Path,
) -> None:
    """Its own pid there is 1; the daemon sees the one that it has here."""
    with (
        training(memory, "-p", "--fork", "--kill-child", "--mount-proc") as started,
        daemon(memory) as url,
    ):
        assert slots.read(started.folder).identity.pid == 1
        (reading,) = read(memory).records
        assert reading.alive
        assert reading.pid not in (None, 1)
        assert state(url) == "warming"
        os.kill(reading.pid, signal.SIGKILL)
        wait_until(lambda: state(url) == "lost")


def state(url: str) -> str:
    output = command("status", "--json", "--address", url.removeprefix("http://"))
    return str(json.loads(output.stdout)["runs"][0]["state"])


@needs("-p", "--fork", "--mount-proc")
def test_a_reader_in_another_pid_namespace_detects_that_a_training_is_alive_and_gone(
    memory: Path,
) -> None:
    apart = ("unshare", "-p", "--fork", "--mount-proc")
    with training(memory) as started:
        output = command("status", "--json", "--dir", str(memory), within=apart)
        assert json.loads(output.stdout)["runs"][0]["state"] == "warming"
        started.process.kill()
        started.process.wait()
        output = command("status", "--json", "--dir", str(memory), within=apart)
        assert json.loads(output.stdout)["runs"][0]["state"] == "lost"
