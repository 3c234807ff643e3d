"""Two daemons over one record directory give the same answers and do not affect each other."""

from __future__ import annotations

import json
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from support.daemon import daemon, daemon_process
from support.records import wait_until
from support.stepping import PATIENT, stepping
from warmwatch_monitor.commands.cli import cli


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
