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


def test_the_verdict_on_a_pair_does_not_depend_on_other_arguments(history: Store) -> None:
    """Nor on which start of a program is named."""
    mine = [start(at, 0.036 + 1e-4 * at) for at in (0, 2, 4)]
    theirs = [start(at, 0.030 + 1e-4 * at, run="other") for at in (1, 3, 5)]
    third = [start(at, 0.020 * at, run="third") for at in (6, 7)]
    history.save([*mine, *theirs, *third])
    alone = verdicts("start0", "start1")
    assert alone["other, gpt2"] == ("faster", pytest.approx(1.19, abs=0.01))
    beside = verdicts("start0", "start7", "start1", "start6")
    assert beside["other, gpt2"] == alone["other, gpt2"]
    assert verdicts("start4", "start3")["other, gpt2"] == alone["other, gpt2"]
    starts = verdicts("start0", "start1", "start2", "start4")
    assert starts["other, gpt2 (start0)"] == alone["other, gpt2"]
    assert starts["gpt2 (start4), gpt2 (start0)"] == (
        "same_program",
        pytest.approx(0.0360 / 0.0364),
    )


def test_each_run_of_a_program_has_its_compile_cost(history: Store) -> None:
    """Compile caches and load change it: a difference of two runs is not one of two programs."""
    cost = {"compile.seconds": 150.0, "cost.beyond_steady_seconds": None}
    history.save([start(0), start(1, answers=cost), start(8, run="other")])
    shown = " ".join(compared("start0", "start8").split())
    first, other = re.findall(r"36 ms in start[01] \(compile cost (\d+ s)\)", shown)
    assert (first != other, other) == (True, "150 s")


def test_another_run_on_its_host_at_the_same_time_has_a_warning(history: Store) -> None:
    mine = of(start(0), gpus=())
    assert mine.ended is not None
    took = mine.ended - mine.began
    beside = start(1, run="beside", began=mine.began + 0.75 * took)
    before = of(start(2, run="before", began=mine.began - took, ended=mine.began), gpus=())
    elsewhere = start(3, run="elsewhere", host="node2", began=mine.began)
    history.save([mine, beside, before, elsewhere])
    shown = " ".join(compared("start0", "before").split())
    words = "beside ran on the same host for 25 % of the time of gpt2, which may slow it"
    assert f"Note: {words}." in shown
    assert shown.count("ran on the same host") == 1
    assert re.search(r"gpt2: 36 ms in start0 \(compile cost [\d.]+ s; beside on its host\)", shown)
    assert "so speed and break-even are unknown: measure again while the machine is quiet" in shown
    (found, _) = json.loads(compared("start0", "before", "--json"))["sides"]
    (neighbour,) = found["neighbours"]
    assert neighbour == {"id": "start1", "run": "beside", "share": pytest.approx(0.25)}
    history.save([start(4, host=None), start(5, run="unknown", host=None, began=start(4).began)])
    assert "on the same host" not in compared("start4", "before")


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


def test_a_start_with_few_clean_steps_is_no_sample(history: Store) -> None:
    short = start(1, 0.05, answers={"step_seconds.clean_count": 9})
    history.save([start(0), short, start(3, 0.030, run="third")])
    assert verdicts("start0", "start3")["third, gpt2"][0] == "once"


def test_two_launches_of_one_command_at_one_time_are_one_program(history: Store) -> None:
    """Though each slowed the other, and an earlier start of one was faster."""
    first = of(start(0, 0.0555), gpus=())
    earlier = of(start(5, 0.023, ended=first.began - 1), gpus=())
    second = of(start(1, 0.0537, began=first.began + 1), gpus=(), unnumbered="gpt2")
    history.save([earlier, first, replace(second, run="gpt2-2")])
    for pair in (("start0", "start1"), ("gpt2", "gpt2-2"), ("gpt2-2", "start5")):
        shown = " ".join(compared(*pair).split())
        assert "ran the same program, as far as recorded, so a difference counts as noise" in shown
        assert "break-even at step" not in shown
        assert shown.count("on the same host") == 1
        assert "mean of its runs" not in shown
    shown = " ".join(compared("start0", "start1").split())
    assert "speed - 1.03 times faster, same program" in shown
    took = first.ended - first.began  # type: ignore[operator]
    share = f"{100 * (took - 1) / took:.0f} % and 100 % of their time"
    words = f"gpt2 and gpt2-2 ran on the same host at the same time, for {share}"
    assert f"Note: {words}, which may slow both." in shown


def test_old_starts_of_one_program_are_no_pair_either(history: Store) -> None:
    """Both have newer other starts than each other."""
    history.save([start(at) for at in range(10)])
    assert verdicts("start8", "start9")["gpt2 (start9), gpt2 (start8)"][0] == "same_program"


def test_runs_that_were_not_repeated_show_a_ratio_and_no_verdict(history: Store) -> None:
    history.save([start(0), start(1, 0.018, run="other")])
    shown = " ".join(compared("start0", "other").split())
    assert (
        "other against gpt2: costs as much; its steps are 2 times faster, not known whether that "
        "is more than noise: run each twice or more, in turn."
    ) in shown
    assert "Runs of each program" not in shown


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


def test_two_compared_starts_are_runs_of_one_program(history: Store) -> None:
    history.save([start(0), start(1, 0.018)])
    shown = " ".join(compared("start0", "start1").split())
    assert "gpt2 (start0) and gpt2 (start1) ran the same program, as far as recorded, so" in shown
    assert "break-even at step" not in shown
