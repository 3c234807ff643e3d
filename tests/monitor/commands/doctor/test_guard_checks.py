"""The finding of ``warmwatch doctor -- CMD``: the time of guard checks, or why it is unknown."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest
from click.testing import CliRunner

from support.stored_runs import rank, run_summary
from warmwatch_monitor.commands.cli import cli
from warmwatch_monitor.commands.doctor import hook_checks
from warmwatch_monitor.commands.doctor.checks import Mark
from warmwatch_monitor.commands.doctor.hook_checks import finding
from warmwatch_monitor.commands.modes.table import Tried

UNKNOWN = "the time of guard checks is unknown: "


def found(**known: Any) -> tuple[Mark, str]:
    """For steps of 36 ms and a function ``forward`` with the number 0."""
    usual = {"mode": "", "summary": run_summary(ranks=(rank(),)), "guard_rank": 0}
    one = finding(Tried(**{**usual, **known}))
    return one.mark, one.what


@pytest.mark.parametrize(
    ("frames", "where"),
    [({"0": 0.003, "1": 0.0006}, "forward (model.py:31)"), ({"7": 0.003}, "frame 7")],
)
def test_above_one_percent_of_a_step_the_most_expensive_function_is_named(
    frames: dict[str, float], where: str
) -> None:
    expected = f"guard checks take 3.6 ms of each step (10 %), 3 ms of it in {where}"
    assert found(guard_seconds=0.0036, guard_frames=frames) == (Mark.NOTE, expected)


@pytest.mark.parametrize(
    ("known", "why"),
    [
        ({"ended_by": "interrupted"}, "interrupted"),
        ({"ended_by": "itself", "summary": None}, "the training ended before they were measured"),
        (
            {"ended_by": "itself", "summary": None, "code": 3},
            "the training ended with exit code 3 before they were measured",
        ),
        (
            {"ended_by": "steady", "summary": run_summary(ranks=(rank(compiled=()),))},
            "nothing was compiled",
        ),
        (
            {
                "ended_by": "steady",
                "summary": run_summary(ranks=(rank(compiled=()),)),
                "guard_seconds": 0.0,
            },
            "nothing was compiled",
        ),
        (
            {"ended_by": "steady", "guard_seconds": 0.0},
            "no compiled code ran while they were measured",
        ),
        (
            {"ended_by": "steady"},
            "no scalar was passed to backward(), or the training uses a profiler",
        ),
    ],
)
def test_an_unknown_time_has_its_cause(known: dict[str, Any], why: str) -> None:
    assert found(**known) == (Mark.NOTE, UNKNOWN + why)


def test_json_is_printed_even_if_a_signal_interrupts_the_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: Any, **__: Any) -> Tried:
        signal.raise_signal(signal.SIGINT)
        return Tried(mode="", ended_by="interrupted")

    monkeypatch.setattr(hook_checks, "attempt", interrupted)
    done = CliRunner().invoke(cli, ["doctor", "--json", "--", "true"])
    assert done.exit_code == 130
    (only,) = json.loads(done.stdout)["findings"]
    assert only["what"] == f"{UNKNOWN}interrupted"
