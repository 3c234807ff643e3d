"""Starts of one name that ended before any monitor ran, or while a later one was shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.daemon import completed, daemon_process
from support.records import wait_until
from support.trainings import environment, run, training


def _start(records: Path, steps: int) -> None:
    run(records, f"model = make()\ntrain(model, torch.optim.SGD(model.parameters(), .1), {steps})")


def _steps(records: Path, env: dict[str, str], run: str) -> int:
    report = completed("report", run, "--json", env=env)
    assert report.returncode == 0, report.stderr
    steps: int = json.loads(report.stdout)["steps"]
    return steps


@pytest.mark.parametrize(
    "asked",
    [pytest.param(False, marks=pytest.mark.long), True],
    ids=["no status", "status in between"],
)
def test_every_ended_start_is_in_the_history(records: Path, tmp_path: Path, asked: bool) -> None:
    env = environment(records, WARMWATCH_STATE=str(tmp_path / "state"))
    _start(records, 4)
    if asked:
        assert completed("status", env=env).returncode == 0
    _start(records, 5)
    _start(records, 6)
    assert [one["steps"] for one in _listed(env)] == [6, 5, 4]
    assert [_steps(records, env, name) for name in ("train", "train~1", "train~2")] == [6, 5, 4]
    assert completed("compare", "train~2", "train", env=env).returncode == 0


@pytest.mark.long
def test_the_start_before_is_never_an_older_one(records: Path, tmp_path: Path) -> None:
    """Whichever command is the first after the runs."""
    env = environment(records, WARMWATCH_STATE=str(tmp_path / "state"))
    _start(records, 4)
    assert len(_listed(env)) == 1
    _start(records, 5)
    _start(records, 6)
    compared = completed("compare", "train~1", "train", "--json", env=env)
    sides = json.loads(compared.stdout)["sides"]
    assert [one["steps"] for one in sides] == [5, 6]
    _start(records, 7)
    assert _steps(records, env, "train~1") == 6
    _start(records, 8)
    csv = tmp_path / "csv"
    assert completed("export", "train~1", "--csv", str(csv), env=env).returncode == 0
    assert len(_listed(env)) == 5


def test_a_daemon_stores_starts_that_ended_before_it_started(records: Path, tmp_path: Path) -> None:
    env = environment(records, WARMWATCH_STATE=str(tmp_path / "state"))
    _start(records, 4)
    _start(records, 5)
    state = str(tmp_path / "state")
    with daemon_process(WARMWATCH_DIR=str(records), WARMWATCH_STATE=state):
        wait_until(lambda: len(_listed(env)) == 2)
    assert [one["steps"] for one in _listed(env)] == [5, 4]


@pytest.mark.long
def test_two_launches_at_one_time_ran_the_same_program(records: Path, tmp_path: Path) -> None:
    """The agent numbers the second. A user who numbers names a version."""
    env = environment(records, WARMWATCH_STATE=str(tmp_path / "state"))
    body = "model = make()\ntrain(model, torch.optim.SGD(model.parameters(), .1), 30)\n"
    with training(records, f"{body}gate('trained')") as first:
        first.reach("trained")
        run(records, body)
        first.go()
        assert first.wait() == 0, first.stderr
    run(records, body, env={"WARMWATCH_RUN": "train-3"})
    same = "ran the same program, as far as recorded"
    compared = " ".join(completed("compare", "train", "train-2", env=env).stdout.split())
    assert f"train and train-2 {same}" in compared
    assert "faster," not in compared.split("Side by side")[0]
    versions = completed("compare", "train", "train-3", env=env)
    assert versions.returncode == 0, versions.stderr
    assert same not in " ".join(versions.stdout.split())


def _listed(env: dict[str, str]) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(completed("runs", "--json", env=env).stdout)["runs"]
    return listed
