"""Trainings that build kernels with compilers of their own, in processes below them."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support import slots
from support.daemon import completed, daemon, daemon_process, status_of
from support.records import wait_until
from support.trainings import Training, training
from warmwatch.shared.record import KINDS, PHASES
from warmwatch_monitor.base.settings import HistorySettings
from warmwatch_monitor.history.store import Store

# The kernel names a process after its script. It works for as long as its last argument exists.
COMPILER = '#!/bin/sh\nfor file; do :; done\nwhile [ -e "$file" ]; do :; done\n'
WARM = """
import os, subprocess, sys, threading, warmwatch
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
c = torch.compile(model, backend="aot_eager")
train(c, o, 6)
gate("warm")
"""
AFTER = """
gate("built")
for n in range(3):
    train(c, o, 1); gate(f"step {n}")
"""
BUILDS = {
    "subprocess": 'subprocess.run(["./nvcc", "-c", "kernel.cu", "busy"])',
    "output": 'subprocess.check_output("cd . && ./nvcc -c kernel.cu busy", shell=True)',
    "system": 'os.system("./nvcc -c kernel.cu busy")',
    "below": 'subprocess.run([sys.executable, "-c", "import os; os.system(\'./nvcc busy\')"])',
    "lines": 'list(subprocess.Popen(["./nvcc", "k.cu", "busy"], stdout=subprocess.PIPE).stdout)',
}


@contextmanager
def building(records: Path, build: str) -> Iterator[Training]:
    """A warm training that does ``build`` now, with a compiler named nvcc."""
    place = records.parent
    (place / "nvcc").write_text(COMPILER)
    (place / "nvcc").chmod(0o755)
    (place / "busy").touch()
    with training(records, f"{WARM}{build}\n{AFTER}") as started:
        started.reach("warm")
        try:
            yield started
        finally:
            (place / "busy").unlink(missing_ok=True)


def rank(url: str) -> Any:
    (one,) = status_of(url)["runs"][0]["ranks"]
    return one


def metrics(url: str) -> str:
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        return str(answer.read().decode())


def gauge(text: str, name: str) -> float:
    (found,) = re.findall(rf"^warmwatch_{re.escape(name)}[^ ]* (\S+)$", text, re.MULTILINE)
    return float(found)


SENTENCE = (
    r"train: recompiling for [\d.]+ (s|ms|min): `nvcc` runs below the training"
    r"(; the GPU waits at \d+ W)?"  # where there is one
)


@pytest.mark.parametrize(
    "how", ["system", *(pytest.param(h, marks=pytest.mark.long) for h in BUILDS if h != "system")]
)
def test_a_daemon_reports_a_compiler_below_a_training_that_waits(records: Path, how: str) -> None:
    with building(records, BUILDS[how]) as started, daemon(records) as url:
        wait_until(lambda: rank(url)["state"] == "warm")
        began = time.time()
        started.go()
        wait_until(lambda: rank(url)["state"] == "recompiling")
        answer = status_of(url)
        assert (answer["compiling"], answer["warm"]) == (True, False)
        assert re.fullmatch(SENTENCE, answer["summary"])
        (one,) = answer["runs"][0]["ranks"]
        assert one["compile"]["phase"] == "outside"
        assert one["since"] >= began - 0.1, "since the build, not since the last step"
        text = metrics(url)
        assert (gauge(text, "warm{"), gauge(text, "compiling{")) == (0, 1)
        assert gauge(text, 'compile_phase{phase="outside"') == 1
        wait_until(lambda: gauge(metrics(url), 'compile_seconds_total{phase="outside"') > 1)
        waited = completed("wait", "--address", url, "--timeout", "0.5")
        assert waited.returncode == 124
        (records.parent / "busy").unlink()
        started.reach("built")
        for n in range(3):
            wait_until(lambda: rank(url)["state"] == "recompiling")
            started.go()
            started.reach(f"step {n}")
        # the step that waited is not clean, so K more are needed
        wait_until(lambda: rank(url)["steps"] == 9)
        assert (rank(url)["state"], rank(url)["clean_steps"]) == ("recompiling", 2)
        spent = rank(url)["compile"]["phase_seconds"]["outside"]
        assert 1 < spent < time.time() - began
        assert rank(url)["compile"]["seconds"] >= spent


@pytest.mark.long
def test_a_restarted_daemon_answers_as_the_killed_one_did(records: Path) -> None:
    """Only a daemon sees these builds, so it writes each to the history as soon as it is over."""
    settings = HistorySettings(directory=str(records.parent / "state"))
    words = ("--dir", str(records), "--interval", "0.05")

    def answer(url: str) -> Any:
        one = rank(url)
        compile = [one["compile"][name] for name in ("seconds", "phase_seconds", "compilations")]
        return compile, *(one[name] for name in ("state", "clean_steps", "warmup", "long_steps"))

    with building(records, BUILDS["system"]) as started:
        with daemon_process(*words, WARMWATCH_STATE=settings.directory) as (process, url):
            wait_until(lambda: bool(status_of(url)["runs"]) and rank(url)["state"] == "warm")
            started.go()
            wait_until(lambda: rank(url)["state"] == "recompiling")
            wait_until(lambda: gauge(metrics(url), 'compile_seconds_total{phase="outside"') > 1)
            (records.parent / "busy").unlink()
            started.reach("built")
            for n in range(3):
                started.go()
                started.reach(f"step {n}")
            wait_until(lambda: (rank(url)["steps"], rank(url)["state"]) == (9, "recompiling"))
            before = answer(url)
            assert rank(url)["compile"]["phase_seconds"]["outside"] > 1
            wait_until(lambda: any(one.outside for one in Store(settings).seen().values()))
            process.kill()
        with daemon(records, WARMWATCH_STATE=settings.directory) as url:
            wait_until(lambda: answer(url) == before)


@pytest.mark.parametrize(
    "how", ["subprocess", *(pytest.param(h, marks=pytest.mark.long) for h in ("output", "system"))]
)
def test_a_command_without_a_daemon_reports_it(records: Path, how: str) -> None:
    with building(records, BUILDS[how]) as started:
        assert completed("status", "--dir", str(records)).returncode == 0
        started.go()
        said: list[str] = []

        def compiles() -> bool:
            done = completed("status", "--dir", str(records))
            said.append(done.stdout)
            return done.returncode == 3

        wait_until(compiles)
        assert re.match(SENTENCE, said[-1])


def test_a_build_that_the_training_waits_for_is_recorded(records: Path) -> None:
    """By the agent: exact, and known after the fact."""
    with building(records, BUILDS["subprocess"]) as started:
        folder = slots.only(records)
        before = slots.read(folder).compile
        started.go()
        wait_until(lambda: bool(slots.read(folder).compile.active_since_ns))
        began = time.monotonic_ns()
        (records.parent / "busy").unlink()
        started.reach("built")
        ended = time.monotonic_ns()
        counts = slots.read(folder).compile
        assert counts.begun == counts.ended == before.begun + 1
        spent = counts.phase_ns[PHASES.index("outside")]
        assert 0 < spent < ended - began + 10**9
        assert counts.compilations[KINDS.index("outside")] == 1
        (line,) = [e for e in slots.events(folder) if e.get("kind") == "outside" and "seconds" in e]
        assert line["name"] == "nvcc"
        assert "kernel.cu" not in (folder / "events.jsonl").read_text(), "arguments stay here"


BESIDE = """
build = subprocess.Popen(["./nvcc", "-c", "kernel.cu", "busy"])
threading.Thread(target=build.wait).start()
while os.path.exists("busy"):
    train(c, o, 1)
"""


def test_a_training_that_steps_beside_a_build_stays_warm(records: Path) -> None:
    with building(records, BESIDE) as started, daemon(records) as url:
        wait_until(lambda: rank(url)["state"] == "warm")
        started.go()
        wait_until(lambda: bool((rank(url)["process"] or {}).get("compilers")))
        steps, seen = rank(url)["steps"], set()

        def later() -> bool:
            now = rank(url)
            seen.add((now["state"], now["compile"]["phase"]))
            return bool(now["steps"] > steps + 200)

        wait_until(later)
        assert seen == {("warm", None)}
        (records.parent / "busy").unlink()
        started.reach("built")
        assert slots.read(slots.only(records)).compile.phase_ns[PHASES.index("outside")] == 0
