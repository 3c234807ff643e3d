"""The last hour, second by second, and its columns."""

from __future__ import annotations

from typing import Any

import pytest

from support import builders as b
from support.values import replace
from warmwatch_monitor.last_hour.ring import LastHour, columns, seconds_of
from warmwatch_monitor.model.journal import Compilation
from warmwatch_monitor.model.snapshot import RankView, Snapshot

STATES = b.in_every_state()


def at(second: float, *views: RankView, **rest: object) -> Snapshot:
    """A snapshot that many seconds after the first."""
    moment = round(second * b.SECOND)
    whole = b.snapshot(*views, **rest)
    return replace(whole, now_ns=b.NOW + moment, epoch=b.EPOCH + second)


def stepped(steps: int) -> RankView:
    return b.view(replace(b.WARM, steps=replace(b.WARM.steps, steps=steps)))


def recorded(*snapshots: Snapshot, **options: Any) -> LastHour:
    history = LastHour(**options)
    for snapshot in snapshots:
        history.take(snapshot)
    return history


def test_each_second_has_the_last_state_of_that_second() -> None:
    history = recorded(at(0, stepped(10)), at(0.4, stepped(12)), at(1, stepped(40)))
    found = columns(history)
    assert found["at"] == [b.EPOCH + 0.4, b.EPOCH + 1]
    (rank,) = found["ranks"]
    assert (rank["run"], rank["rank"], rank["steps"]) == ("gpt2", 0, [12, 40])
    assert rank["step_seconds"] == [0.036, 0.036]
    assert rank["states"] == [(b.EPOCH + 0.4, "warm")]
    assert rank["phases"] == [(b.EPOCH + 0.4, None)]
    names = ("steps", "step_seconds", "state", "phase")
    first, second = seconds_of(history, ("gpt2", 0), names, 60)
    values = {"steps": 12, "step_seconds": pytest.approx(0.036), "state": "warm", "phase": None}
    assert first == (b.EPOCH + 0.4, values)
    assert second == (b.EPOCH + 1, {**values, "steps": 40})
    assert seconds_of(history, ("gpt2", 0), names, 1) == [second]
    assert seconds_of(history, ("gpt2", 1), names, 60) == []


def test_each_second_has_the_speed_of_the_headline_and_a_long_step_stands_out() -> None:
    """Of two lengths in turn, as in a GAN: each poll comes after the short one."""
    history, record = LastHour(), b.GrowingRecord()
    for second in range(1, 30):
        while record.now < second:
            record.mark(2.0 if 20 < record.now < 22 else 0.03)
            record.mark(0.005)
        slot = record.slot()
        view = b.view(replace(slot, identity=replace(slot.identity, run="gan")))
        history.take(at(max(second, record.now), view))
    (rank,) = columns(history)["ranks"]
    usual = [value for value in rank["step_seconds"][1:] if value is not None]
    long = max(usual)
    usual.remove(long)
    assert long > 1
    assert usual == pytest.approx([view.figures.steps.recent] * len(usual), rel=0.05)
    assert rank["step_seconds"][-1] == pytest.approx(0.0175, rel=0.05)


def test_the_seconds_remain_in_order_after_the_clock_was_set_back() -> None:
    before, after = at(0, stepped(10)), at(1, stepped(12))
    set_back = replace(at(2, stepped(14)), epoch=b.EPOCH - 3600)
    found = columns(recorded(before, after, set_back))
    assert found["at"] == [b.EPOCH - 3602, b.EPOCH - 3601, b.EPOCH - 3600]
    (rank,) = found["ranks"]
    assert rank["states"] == [(b.EPOCH - 3602, "warm")]
    assert rank["steps"] == [10, 12, 14]


def test_a_recompile_between_two_polls_is_in_its_second() -> None:
    spent = tuple(ns + 10**8 * (at == 0) for at, ns in enumerate(b.WARM.compile.phase_ns))
    after = replace(b.WARM, compile=replace(b.WARM.compile, phase_ns=spent))
    history = recorded(at(0, STATES["warm"]), at(1.0, b.view(after)), at(1.2, b.view(after)))
    (rank,) = columns(history)["ranks"]
    assert rank["compile_seconds"] == [0.0, 0.1]
    assert [name for _, name in rank["phases"]] == [None, "dynamo"]


def paused(**reported: float | None) -> RankView:
    view = STATES["warm"]
    pauses = replace(view.figures.pauses, **reported)
    return replace(view, figures=replace(view.figures, pauses=pauses))


def test_an_evaluation_and_a_save_are_in_their_seconds() -> None:
    history = recorded(
        at(0, paused(evaluation_seconds=1.0)),
        at(1, paused(evaluation_seconds=1.0, evaluating_since=b.EPOCH)),
        at(2, paused(evaluation_seconds=2.0)),  # it ended between two polls
        at(3, paused(evaluation_seconds=2.0, saving_since=b.EPOCH)),
        at(4, STATES["warm"]),
    )
    (rank,) = columns(history)["ranks"]
    assert [name for _, name in rank["pauses"]] == [None, "evaluation", "saving", None]
    assert [moment - b.EPOCH for moment, _ in rank["pauses"]] == [0, 1, 3, 4]


def test_recompiles_have_reason_and_time_for_the_whole_period() -> None:
    def one(id: str, ago: float, **why: str) -> Compilation:
        made = Compilation(id=id, kind="forward", at_ns=b.NOW - round(ago * b.SECOND))
        return replace(made, **why)

    why = {"reason": "tensor 'x' size mismatch", "category": "shape"}
    log = (one("0/1", 4000.0, **why), one("0/2", 7.0), one("0/3", 3.0, **why))
    view = STATES["warm"]
    figures = replace(view.figures, log=replace(view.figures.log, compilations=log))
    seen = [at(second, replace(view, figures=figures)) for second in (-60, 0)]
    (rank,) = columns(recorded(*seen))["ranks"]
    assert [(made["id"], made["at"]) for made in rank["recompiles"]] == [("0/3", b.EPOCH - 3)]
    assert rank["recompiles"][0]["reason"] == "tensor 'x' size mismatch"


def test_with_fewer_points_each_is_the_mean_of_as_many_seconds() -> None:
    gpus = [b.gpu(power_watts=float(watts)) for watts in (100, 200, 300, 500)]
    history = recorded(*(at(n, stepped(n), gpus=(gpu,)) for n, gpu in enumerate(gpus)))
    found = columns(history, points=2)
    assert found["seconds"] == 2
    assert found["gpus"][0]["power_watts"] == [150.0, 400.0]
    assert found["ranks"][0]["steps"] == [1, 3]
    assert found["at"] == [b.EPOCH + 1, b.EPOCH + 3]


def test_memory_is_bounded_and_the_least_recent_ranks_are_evicted() -> None:
    runs = [b.in_every_state(f"run{n}")["warm"] for n in range(4)]
    history = recorded(at(0, *runs[:3]), most_ranks=3)
    history.take(at(1, *runs))
    assert len(history.ranks) == 3  # all of them are seen now: there is no room
    history.take(at(3, *runs[1:]))
    history.take(at(5, *runs[1:]))
    names = {run for run, _ in history.ranks}
    assert names == {"run1", "run2", "run3"}
