"""Which other runs a comparison uses: starts of the same programs, and runs beside them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from support import builders as b
from support import reported as a
from support.records import write_record
from support.values import replace
from warmwatch_monitor.base.settings import load_history_settings
from warmwatch_monitor.commands.cli import cli
from warmwatch_monitor.history.store import Store
from warmwatch_monitor.model.run_summary import RunSummary


def start(at: int, step: float = 0.036, **rest: Any) -> RunSummary:
    """A start of one run, with a step of this length."""
    answers = {"step_seconds.typical": step}
    view = b.view(b.ended("finished"), alive=False)
    known = a.run_summary(view, answers={**answers, **rest.pop("answers", {})})
    return replace(known, **{"id": f"start{at}", "began": known.began - 1000 * at, **rest})


def worth(operations: float) -> dict[str, Any]:
    return {"flops_per_step": operations, "estimated": False, "dtype": "bfloat16"}


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


def verdicts(*names: str) -> dict[str, tuple[str, float]]:
    """By the names of a pair, the verdict and the ratio, without its rounding."""
    made = json.loads(compared(*names, "--json"))
    return {
        f"{one['run']}, {one['against']}": (
            one["difference"]["verdict"],
            round(one["difference"]["ratio"], 9),
        )
        for one in made["break_even"]
    }


def test_other_starts_of_a_compared_run_are_samples_of_its_program(history: Store) -> None:
    """20 % within what three runs of one program differ by: no difference."""
    others = [start(8, 0.031, run="other"), start(9, 0.030, run="other")]
    history.save([start(0), start(1, 0.040), start(2, 0.044), *others])
    shown = " ".join(compared("start0", "start8").split())
    assert re.search(
        r"gpt2: 36 ms in start0 \(.+\), 40 ms in start1 \(.+\), 44 ms in start2", shown
    )
    assert "its steps are 1.31 times faster, which is within the noise between runs." in shown
    assert "mean of its runs 39.9 ms, 3 runs 30.5 ms, 2 runs" in shown
    assert "break-even at step" not in shown


def test_an_earlier_start_that_is_not_in_the_history_yet_is_a_sample_of_its_program(
    history: Store, tmp_path: Path
) -> None:
    history.save([start(8, run="other")])
    slot = b.ended("finished")
    for attempt in (0, 1):
        identity = replace(slot.identity, attempt=attempt)
        write_record(tmp_path, replace(slot, identity=identity), name=f"attempt{attempt}")
    assert re.search(r"mean of its runs +36 ms, 2 runs", compared("gpt2", "start8"))


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        (
            {"limited_by": {"verdict": "shared", "contended": "cpu", "share": 0.4}},
            "CPU contention",
        ),
        ({"slower_periods": [a.SLOWER]}, "a slower period"),
    ],
)
def test_a_run_that_other_work_slowed_is_no_sample_and_no_other_replaces_it(
    history: Store, answers: dict[str, Any], why: str
) -> None:
    """Its program twice without that is a sample: the slow run would make it 1.3 times slower."""
    slow = start(0, 0.047, answers=answers)
    others = [start(at, 0.036, run="other") for at in (2, 4)]
    history.save([slow, *others, start(1, 0.036), start(3, 0.0361)])
    assert verdicts("start1", "start2")["other, gpt2"][0] == "within_noise"
    assert verdicts("start0", "start2")["other, gpt2"] == (
        "disturbed",
        pytest.approx(0.047 / 0.036),
    )
    shown = " ".join(compared("start0", "start2").split())
    assert re.search(rf"47 ms in start0 \(compile cost [\d.]+ s; {why}\), 36 ms in start1", shown)
    assert "its steps are 1.31 times faster, but runs were slowed" in shown
    assert "steady step 47 ms 36 ms" in shown
    assert "mean of its runs - 36 ms, 2 runs" in shown


@pytest.mark.parametrize(
    "other",
    [
        start(1, 0.040, host="node2"),
        start(1, 0.040, owner="alice", run="gpt2@alice"),
        of(start(1, 0.040), torch="2.1"),
        of(start(1, 0.040), samples_per_step=64),
        of(start(1, 0.040), wrappings=(a.H100.wrappings[0],), commit="beef"),
        start(1, 0.040, answers={"worth": worth(5.0)}),
        start(1, 0.040, answers={"compile.seconds": 0.0, "compile.graphs": 0}),
    ],
)
def test_another_program_host_mode_or_batch_is_no_other_start(
    history: Store, other: RunSummary
) -> None:
    mine = of(start(0), samples_per_step=32, commit="cafe")
    answer = {**mine.ranks[0].answer, "worth": worth(4.0)}
    mine = replace(mine, ranks=(replace(mine.ranks[0], answer=answer),))
    history.save([mine, other, start(9, 0.030, run="third")])
    assert "Runs of each program" not in compared("start0", "third")


def test_the_runs_of_one_program_are_named_once(history: Store) -> None:
    other = [of(start(at, 0.018, run="other"), script="other.py") for at in (3, 4)]
    history.save([start(0), start(1), start(2), *other])
    shown = " ".join(compared("start0", "start1", "start2", "start3", "start4").split())
    assert "Not the same script: train.py in gpt2, other.py in other; this" in shown
    assert "gpt2 (start0), gpt2 (start1) and gpt2 (start2) ran the same program" in shown
    assert shown.count("ran the same program") == 1
    runs = shown.split("Runs of each program")[1].split("How to read it")[0]
    assert [word for word in runs.split() if word.endswith(":")] == ["gpt2:", "other:"]
