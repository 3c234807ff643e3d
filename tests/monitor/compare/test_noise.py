"""The noise between runs of one program: how it is measured, and where it comes from."""

from __future__ import annotations

import json
import random
from math import exp, log
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from support import builders as b
from support import reported as a
from support.values import replace
from warmwatch_monitor.cli import cli
from warmwatch_monitor.compare.noise import UNMEASURED, Repeats, noise
from warmwatch_monitor.history.store import Store
from warmwatch_monitor.model.run_summary import RunSummary
from warmwatch_monitor.settings import load_history_settings


def repeats(*seconds: float) -> Repeats:
    return Repeats(program="eager", runs=tuple(map(str, seconds)), seconds=seconds)


def test_the_noise_is_students_interval_of_the_spread_in_logarithms() -> None:
    found = noise([repeats(0.010, 0.011)])
    assert found.difference == pytest.approx(12.706 * log(1.1))
    assert found.measured
    assert found.of(0.02) == pytest.approx(0.02 * found.difference / 2**0.5)
    assert noise([repeats(0.010, 0.011), repeats(0.3)]) == found  # one run shows nothing
    more = noise([repeats(0.010, 0.011), repeats(0.20, 0.22)])
    assert more.difference == pytest.approx(4.303 * log(1.1))


def test_without_repeats_the_noise_is_assumed() -> None:
    found = noise([repeats(0.01)])
    assert (found.difference, found.measured, found.repeats) == (UNMEASURED, False, ())


def test_one_difference_in_twenty_of_the_same_program_is_beyond_the_noise() -> None:
    """Whatever the spread, and however few runs it is measured with."""
    chosen = random.Random(7)

    def run() -> float:
        return exp(chosen.gauss(0.0, 0.08))

    for groups in (1, 2, 4):
        beyond = 0
        for _ in range(4000):
            found = noise([repeats(run(), run()) for _ in range(groups)])
            beyond += abs(log(run() / run())) > found.difference
        assert beyond / 4000 == pytest.approx(0.05, abs=0.012)


def start(at: int, step: float = 0.036, **rest: Any) -> RunSummary:
    """A start of one run, with a step of this length."""
    answers = {"step_seconds.typical": step, "step_seconds.typical_uncertainty": 1e-5}
    view = b.view(b.ended("finished"), alive=False)
    known = a.run_summary(view, answers={**answers, **rest.pop("answers", {})})
    return replace(known, **{"id": f"start{at}", "began": known.began - 1000 * at, **rest})


def of(run: RunSummary, **what: Any) -> RunSummary:
    return replace(run, what=replace(run.what, **what))


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    environ = {"WARMWATCH_STATE": str(tmp_path / "state"), "WARMWATCH_DIR": str(tmp_path)}
    environ["WARMWATCH_STATE_DAYS"] = "36500"
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return Store(load_history_settings(environ))


def compared(*names: str) -> str:
    done = CliRunner().invoke(cli, ["compare", *names], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.output


def test_other_starts_of_a_compared_run_show_the_noise(history: Store) -> None:
    """20 % within what three runs of one program differ by: no difference."""
    other = start(9, 0.030, run="other")
    history.save([start(0), start(1, 0.040), start(2, 0.044), other])
    shown = compared("start0", "other")
    assert "gpt2: 36 ms in start0, 40 ms in start1, 44 ms in start2" in shown
    assert "their steps do not differ beyond noise: 6 ± " in shown
    assert "break-even at step" not in shown


def test_another_run_on_its_host_at_the_same_time_has_a_warning(history: Store) -> None:
    mine = start(0)
    assert mine.ended is not None
    took = mine.ended - mine.began
    beside = start(1, run="beside", began=mine.began + 0.75 * took)
    before = start(2, run="before", began=mine.began - took, ended=mine.began)
    elsewhere = start(3, run="elsewhere", host="node2", began=mine.began)
    history.save([mine, beside, before, elsewhere])
    shown = compared("start0", "before")
    words = "beside (start1) ran on the same host for 25 % of the time of gpt2, which may slow it"
    assert f"Note: {words}." in shown
    assert shown.count("on the same host") == 1
    (found, _) = json.loads(compared("start0", "before", "--json"))["sides"]
    (neighbour,) = found["neighbours"]
    assert neighbour == {"id": "start1", "run": "beside", "share": pytest.approx(0.25)}
    history.save([start(4, host=None), start(5, run="unknown", host=None, began=start(4).began)])
    assert "on the same host" not in compared("start4", "before")


def test_without_other_starts_a_bound_is_assumed(history: Store) -> None:
    history.save([start(0), start(1, 0.0355, run="near"), start(2, 0.030, run="far")])
    near, far = compared("start0", "near"), compared("start0", "far")
    assert "as no other run repeats one of these: less than 5 % counts as noise" in near
    assert "their steps do not differ beyond noise: 0.5 ± 1.8 ms shorter" in near
    assert "costs as much and saves 6 ± 1.7 ms a step" in far


@pytest.mark.parametrize(
    "other",
    [
        start(1, 0.040, host="node2"),
        start(1, 0.040, owner="alice", run="gpt2@alice"),
        of(start(1, 0.040), torch="2.1"),
        of(start(1, 0.040), samples_per_step=64),
        of(start(1, 0.040), wrappings=(a.H100.wrappings[0],), commit="beef"),
        start(1, 0.040, answers={"worth": {"flops_per_step": 5.0}}),
        start(1, 0.040, answers={"compile.seconds": 0.0, "compile.graphs": 0}),
    ],
)
def test_another_program_host_mode_or_batch_shows_no_noise(
    history: Store, other: RunSummary
) -> None:
    mine = of(start(0), samples_per_step=32, commit="cafe")
    worth = {**mine.ranks[0].answer, "worth": {"flops_per_step": 4.0}}
    mine = replace(mine, ranks=(replace(mine.ranks[0], answer=worth),))
    history.save([mine, other, start(9, 0.030, run="third")])
    assert "as no other run repeats one of these" in compared("start0", "third")


def test_two_compared_starts_are_no_repeats_of_each_other(history: Store) -> None:
    history.save([start(0), start(1, 0.018)])
    shown = compared("start0", "start1")
    assert "as no other run repeats one of these" in shown
    assert "18 ± " in shown
