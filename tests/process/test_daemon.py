"""Real trainings with a real daemon: all states, and all ways in which a training ends."""

from __future__ import annotations

import json
import signal
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from support.daemon import daemon, daemon_process
from support.records import wait_until
from support.stepping import PATIENT, stepping
from support.trainings import training
from warmwatch_monitor.commands.cli import cli

COMPILED = """
model = make(); o = torch.optim.AdamW(model.parameters())
c = torch.compile(model, backend=slowly)
"""
SLOWLY = """
def slowly(graph, inputs):
    gate("compiling")
    return graph.forward
"""


def get(url: str, path: str = "/status") -> Any:
    with urllib.request.urlopen(url + path, timeout=60) as reply:
        return json.load(reply)


def rank_of(url: str, run: str = "train") -> Any:
    (rank,) = get(url, f"/status?run={run}")["runs"][0]["ranks"]
    return rank


def until(url: str, condition: Callable[[Any], bool]) -> Any:
    """Wait for an answer that fulfils ``condition``, and whose records were read after this call.

    So it contains everything that a training did before this call.
    """
    last: list[Any] = []
    now = time.time()

    def is_fulfilled() -> bool:
        last[:] = [get(url)]
        return last[0]["at"] is not None and last[0]["at"] > now and condition(last[0])

    wait_until(is_fulfilled)
    return last[0]


def state_is(state: str) -> Callable[[Any], bool]:
    return lambda answer: [run["state"] for run in answer["runs"]] == [state]


def metric(url: str, name: str, **labels: str) -> float | None:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as reply:
        for family in text_string_to_metric_families(reply.read().decode()):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return float(sample.value)
    return None


def test_a_training_passes_through_all_its_states(records: Path) -> None:
    """Starting, compiling, warming, warm; a new shape reopens it, with its reason; finished."""
    body = (
        SLOWLY
        + COMPILED.replace("c = ", "gate('starting')\nc = ")
        + """
for n in range(4): train(c, o, 1); gate(f"step {n + 1}")
train(c, o, 1, batch=7); gate("reopened")
train(c, o, 3, batch=7); gate("warm again")
"""
    )
    with training(records, body) as started, daemon(records) as url:
        started.reach("starting")
        answer = until(url, state_is("starting"))
        assert (answer["compiling"], answer["warm"]) == (False, False)
        started.go()
        started.reach("compiling")
        answer = until(url, state_is("compiling"))
        assert (answer["compiling"], answer["warm"]) == (True, False)
        first = rank_of(url)["compile"]["seconds"]
        until(url, lambda _: rank_of(url)["compile"]["seconds"] > first)  # while it stands there
        assert metric(url, "warmwatch_compiling", run="train", rank="0") == 1
        started.go()
        for n in range(3):
            started.reach(f"step {n + 1}")
            until(url, lambda _, n=n: rank_of(url)["steps"] == n + 1)
            rank = rank_of(url)  # `until` requested its answer before it checked the condition
            assert (rank["state"], rank["clean_steps"]) == ("warming", n)
            assert metric(url, "warmwatch_warmup_seconds") is None
            started.go()
        started.reach("step 4")
        answer = until(url, state_is("warm"))
        assert (answer["compiling"], answer["warm"]) == (False, True)
        assert rank_of(url)["warmup"]["steps"] == 1
        assert metric(url, "warmwatch_warmup_steps") == 1
        started.go()
        started.reach("compiling")
        until(url, state_is("recompiling"))
        started.go()
        started.reach("reopened")
        until(url, lambda _: rank_of(url)["steps"] == 5)
        (entry,) = [e for e in rank_of(url)["compile"]["last"] if e["category"]]
        assert "size mismatch" in entry["reason"]
        assert (entry["category"], rank_of(url)["state"]) == ("shape", "recompiling")
        assert rank_of(url)["warmup"]["ended"] is False
        started.go()
        started.reach("warm again")
        until(url, state_is("warm"))
        assert metric(url, "warmwatch_recompiles_after_warm_total") == 1
        assert started.wait() == 0
        answer = until(url, state_is("finished"))
        assert (answer["compiling"], answer["warm"]) == (None, None)


def test_a_daemon_that_is_killed_and_started_again_continues_every_counter(records: Path) -> None:
    body = SLOWLY + COMPILED + "train(c, o, 5); gate('five'); train(c, o, 2); gate('seven')\n"
    with training(records, body) as started:
        with daemon_process("--dir", str(records)) as (process, url):
            started.reach("compiling")
            until(url, state_is("compiling"))
            process.send_signal(signal.SIGKILL)
        started.go()
        started.reach("five")
        with daemon(records) as url:
            until(url, state_is("warm"))
            rank = rank_of(url)
            assert (rank["steps"], rank["compile"]["compilations"]) == (5, 1)
            assert rank["warmup"]["steps"] == 1
            compiled = metric(url, "warmwatch_compile_seconds_total", phase="other")
            assert compiled
            started.go()
            started.reach("seven")
            until(url, lambda _: rank_of(url)["steps"] == 7)
            assert metric(url, "warmwatch_compile_seconds_total", phase="other") == compiled


# Two daemons over one record directory give the same answers and do not affect each other


def rank(url: str) -> Any:
    with urllib.request.urlopen(f"{url}/status", timeout=60) as reply:
        runs = json.load(reply)["runs"]
    return runs[0]["ranks"][0] if runs else {"steps": None, "state": None}


def counted(url: str) -> dict[str, str]:
    """Each series of the run that counts, but for what depends on the moment of the look."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as reply:
        lines = reply.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if 'run="t"' in line)
    of_the_moment = ("process", "last_step_age")
    return {name: value for name, value in pairs if not any(word in name for word in of_the_moment)}


def test_both_report_the_same_and_one_that_stops_or_is_killed_does_not_affect_the_other(
    memory: Path, tmp_path: Path
) -> None:
    arguments = ("--dir", str(memory), "--interval", "0.05")
    with (
        stepping(memory, tmp_path / "errors") as training,
        daemon(memory) as one,
        daemon_process(*arguments) as (process, two),
    ):
        for _ in range(3):
            training.step(100)
            for url in (one, two):
                wait_until(lambda url=url: rank(url)["steps"] == training.steps)
            wait_until(lambda: counted(one) == counted(two))
        process.send_signal(signal.SIGSTOP)
        training.step(100)
        wait_until(lambda: rank(one)["steps"] == training.steps)
        process.kill()
        training.step(100)
        wait_until(lambda: rank(one)["steps"] == training.steps)
        assert rank(one)["state"] == "eager"
        with daemon(memory) as third:
            wait_until(lambda: counted(third) == counted(one))
            training.process.kill()
            for url in (one, third):
                wait_until(lambda url=url: rank(url)["state"] == "lost")


# what ends the program, once its input does; no end of these writes an exit status
ENDS = {
    "signal": ("os.abort()", "failed", "SIGABRT", None, "killed by SIGABRT"),
    "_exit": ("os._exit(3)", "failed", None, 3, "failed after 4 steps with exit code 3"),
    "_exit 0": ("os._exit(0)", "finished", None, 0, "finished after 4 steps"),
    "at its end": (None, "failed", None, 4, "failed after 4 steps with exit code 4"),
}


@pytest.mark.parametrize(
    ("body", "state", "name", "code", "words"),
    [
        pytest.param(*end, id=name, marks=[pytest.mark.long] * (name not in ("signal", "_exit")))
        for name, end in ENDS.items()
    ],
)
def test_a_restarted_daemon_and_commands_without_one_report_the_same_end(
    memory: Path, tmp_path: Path, body: str | None, state: str, name: str, code: int, words: str
) -> None:
    """Only a daemon that lives then sees it; the history has it for the next one."""
    options = ("--dir", str(memory), "--interval", "0.05")
    history = {"WARMWATCH_STATE": str(tmp_path / "state")}
    # handlers run in the reverse order: this one after the agent's
    at_end = "import os, atexit\natexit.register(os._exit, 4)"
    program = PATIENT + body if body else at_end + PATIENT
    with stepping(memory, tmp_path / "errors", program) as training:
        with daemon_process(*options, **history) as (process, url):
            training.step(3)
            wait_until(lambda: rank(url)["steps"] == training.steps)
            training.leave()
            training.process.wait()
            wait_until(lambda: rank(url)["state"] == state)
            end = rank(url)["end"]
            assert (end["signal"], end["exit_code"]) == (name, code)
            process.terminate()
            process.wait()
        with daemon_process(*options, **history) as (_, url):
            wait_until(lambda: rank(url)["state"] == state)
            assert rank(url)["end"] == end
        environ = {**history, "WARMWATCH_DIR": str(memory), "WARMWATCH_ADDRESS": ""}
        for command in ("status", "report"):  # they read the records and the history
            output = CliRunner().invoke(cli, [command, "t"], env=environ).output
            assert words in output
        with daemon_process(*options, WARMWATCH_STATE=str(tmp_path / "other")) as (_, url):
            wait_until(lambda: rank(url)["state"] == "lost")
