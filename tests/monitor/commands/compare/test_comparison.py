"""Runs side by side: when a cost is paid back, how sure that is, and what may not be compared."""

from __future__ import annotations

import re

import pytest

from support import builders as b
from support import reported as a
from support.values import replace
from warmwatch_monitor.commands.compare.comparison import (
    Run,
    Side,
    break_even,
    compare,
    mean,
)
from warmwatch_monitor.commands.compare.wording import page, sentence, speed
from warmwatch_monitor.commands.report.assembly import report
from warmwatch_monitor.commands.report.wording import answer
from warmwatch_monitor.model.run_summary import RunSummary


def side(
    label: str, cost: float, step: float, off: float | None = 0.001, mode: str = "default"
) -> Side:
    """A program that ran three times, in turn with others; once if ``off`` is ``None``."""
    steps = (step,) if off is None else (step, step * (1 + off), step * (1 - off))
    first = 0.5 if mode == "eager" else 0
    runs = tuple(
        Run(id=f"{label}{at}", began=at + first, seconds=each) for at, each in enumerate(steps)
    )
    return Side(
        id=label,
        run=label,
        label=label,
        state="finished",
        mode=mode,
        cost_seconds=cost,
        steady_seconds=step,
        runs=runs,
        mean_seconds=mean(runs),
    )


EAGER = side("eager", 0.4, 0.0527, mode="eager")


@pytest.mark.parametrize(
    ("cost", "step", "off", "outcome", "words"),
    [
        (20.0, 0.060, 0.001, "never", "longer, 1.14 times slower: never breaks even"),
        (20.0, 0.0528, 0.02, "within_noise", "as long, which is within the noise between runs."),
        (0.1, 0.0356, 0.001, "at_once", "ahead from the first step"),
        (20.0, 0.0356, None, "once", "If it is, break-even is near step 1,147."),
        (20.0, 0.060, None, "once", "run each twice or more, in turn."),
    ],
)
def test_each_outcome_has_a_sentence(
    cost: float, step: float, off: float | None, outcome: str, words: str
) -> None:
    found = break_even(side("x", cost, step, off), EAGER)
    assert found.outcome == outcome
    assert sentence(found).endswith(words) or f"{words}." in sentence(found)


def test_a_run_without_a_known_cost_has_a_speed_and_no_break_even() -> None:
    found = break_even(replace(side("x", 1.0, 0.0356), cost_seconds=None), EAGER)
    assert (found.outcome, found.step) == ("unknown", None)
    assert "x against eager: 1.48 times faster (1.4" in sentence(found)
    assert "no break-even, as one of them has no known cost" in sentence(found)


def two(**what: object) -> tuple[RunSummary, RunSummary]:
    other = a.eager(id="other")
    return a.finished(run="compiled"), replace(other, what=replace(other.what, **what))


def test_a_slower_run_is_called_slower() -> None:
    """Nobody reads a speed-up of 0.135 as 7.4 times slower."""
    slow = break_even(side("default", 20.0, 0.39), EAGER)
    assert "longer, 7.4 times slower: never" in sentence(slow)
    assert slow.difference is not None
    assert re.fullmatch(r"7.4 times slower \(7.\d+ to 7.\d+\)", speed(slow.difference))


def test_a_run_that_took_steps_without_compiling_is_eager() -> None:
    """Not before its first step, nor where it was attached when all had been compiled."""
    slot = replace(b.EAGER, compile=replace(b.EAGER.compile, graphs_before=3))
    late = a.run_summary(b.view(b.ended("finished", slot), alive=False), run="late")
    starting = a.run_summary(b.view(b.STARTING), run="starting")
    made = compare((a.finished(), late, starting))
    assert [one.mode for one in made.sides] == ["default", "default", None]
    assert made.baseline == "gpt2"
    assert [one.cost_seconds for one in made.sides[1:]] == [None, None]
    assert [one.outcome for one in made.break_even] == ["unknown", "unknown"]
    partly = a.finished(answers={"compile.graphs_before": 3})
    assert compare((partly, a.eager())).sides[0].cost_seconds is None, "a part is not known"
    assert "nothing was compiled since it was attached; 3 graphs before that" in answer(
        report(late)
    )


@pytest.mark.parametrize(
    ("otherwise", "what", "row"),
    [
        ({"gpus": ("NVIDIA A100",)}, "GPUs", "steady step"),
        ({"world_size": 8}, "world size", "steady step"),
        ({"torch": "2.11.0"}, "torch", "compile cost"),
        ({"commit": "beef"}, "commit", "steady step"),
    ],
)
def test_differences_are_reported_with_the_rows_they_affect(
    otherwise: dict[str, object], what: str, row: str
) -> None:
    compiled, eager = two(**otherwise)
    compiled = replace(compiled, what=replace(compiled.what, commit="cafe"))
    found = {one.what: one.rows for one in compare((compiled, eager)).incomparable}
    assert set(found) == {what}
    assert row in found[what]


def test_each_figure_of_a_run_has_a_row() -> None:
    made = compare((a.finished(), a.eager(run="without")))
    of_gpu = {"joules": 900.0, "gpu_seconds": 30.0, "peak_memory_bytes": 9 * 10**9}
    first = {"first_step_memory_bytes": 8 * 10**9, "compiled_memory_bytes": 10**9}
    runs = EAGER.runs
    sides = tuple(
        replace(one, **of_gpu, **first, joules_per_step=17.0, runs=runs, mean_seconds=mean(runs))
        for one in made.sides
    )
    (shown,) = [one.table for one in page(replace(made, sides=sides)).sections if one.table]
    assert shown is not None
    assert "mean of its runs" not in [name for name, *_ in shown.rows]  # both have the same runs
    others = tuple(replace(one, id=f"another {one.id}") for one in runs)
    sides = (sides[0], replace(sides[1], runs=others))
    (shown,) = [one.table for one in page(replace(made, sides=sides)).sections if one.table]
    assert shown is not None
    assert [name for name, *_ in shown.rows] == [
        *("torch.compile", "state", "first step", "its peak memory", "memory when it had compiled"),
        *("warm-up", "compile cost", "its GPU-seconds", "its energy", "steady step"),
        *(
            "with all between steps",
            "mean of its runs",
            "99 % within",
            "clean steps",
            "speed",
            "tokens/s",
            "peak memory",
            "energy a step",
        ),
        *("graphs", "recompiles", "graph breaks"),
    ]
