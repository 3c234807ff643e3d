"""The last hour, second by second, and its columns."""

from __future__ import annotations

from typing import Any

import pytest

from support import builders as b
from support.values import replace
from warmwatch_monitor.last_hour.ring import SECONDS, LastHour, columns
from warmwatch_monitor.model import Compilation, RankView, Snapshot

STATES = b.in_every_state()


def at(second: float, *views: RankView, **rest: object) -> Snapshot:
    """A snapshot that many seconds after the first."""
    moment = round(second * b.SECOND)
    whole = b.snapshot(*views, **rest)
    return replace(whole, now_ns=b.NOW + moment, epoch=b.EPOCH + second)


def stepped(steps: int) -> RankView:
    return b.view(replace(b.WARM, steps=replace(b.WARM.steps, steps=steps)))


def owned(uid: int, run: str, state: str) -> RankView:
    view = b.in_every_state(run)[state]
    who = replace(view.figures.who, owner_uid=uid)
    return replace(view, figures=replace(view.figures, who=who))


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


def test_steps_of_two_lengths_over_a_second_have_the_speed_of_the_headline() -> None:
    history, record = LastHour(), b.GrowingRecord()
    for step in range(30):
        record.mark(1.2 if step % 2 else 3.0)
        history.take(at(int(record.now), b.view(record.slot())))
    (rank,) = columns(history)["ranks"]
    values = [value for value in rank["step_seconds"][-20:] if value is not None]
    assert values == pytest.approx([2.1] * len(values))
    assert len(values) > 5


def test_the_seconds_remain_in_order_after_the_clock_was_set_back() -> None:
    before, after = at(0, stepped(10)), at(1, stepped(12))
    set_back = replace(at(2, stepped(14)), epoch=b.EPOCH - 3600)
    found = columns(recorded(before, after, set_back))
    assert found["at"] == [b.EPOCH - 3602, b.EPOCH - 3601, b.EPOCH - 3600]
    (rank,) = found["ranks"]
    assert rank["states"] == [(b.EPOCH - 3602, "warm")]
    assert rank["steps"] == [10, 12, 14]


@pytest.mark.parametrize(
    ("second", "states"),
    [(2, ["warm", "recompiling"]), (3, ["warm", None, "recompiling"])],
)
def test_a_poll_describes_the_time_since_the_one_before_unless_that_is_long(
    second: int, states: list[str | None]
) -> None:
    gpu = b.gpu(power_watts=200.0)
    polls = at(0, stepped(10), gpus=(b.gpu(),)), at(second, STATES["recompiling"], gpus=(gpu,))
    found = columns(recorded(*polls))
    (rank,), (power,) = found["ranks"], found["gpus"]
    assert [name for _, name in rank["states"]] == states
    assert rank["steps"][1:-1] == [None] * (second - 1), "a count is of its moment"
    between = None if None in states else 200.0
    assert power["power_watts"] == [686.0, *[between] * (second - 1), 200.0]


def test_a_recompile_between_two_polls_is_in_its_second() -> None:
    spent = tuple(ns + 10**8 * (at == 0) for at, ns in enumerate(b.WARM.compile.phase_ns))
    after = replace(b.WARM, compile=replace(b.WARM.compile, phase_ns=spent))
    history = recorded(at(0, STATES["warm"]), at(1.0, b.view(after)), at(1.2, b.view(after)))
    (rank,) = columns(history)["ranks"]
    assert rank["compile_seconds"] == [0.0, 0.1]
    assert [name for _, name in rank["phases"]] == [None, "dynamo"]


@pytest.mark.parametrize("warm_at", [(0.6, 1.0), (1.0, 2.0)])
def test_a_second_in_which_it_compiled_is_not_shown_as_warm(warm_at: tuple[float, ...]) -> None:
    """It ended in the middle of it: the state that the phase stands above is that of compiling."""
    spent = tuple(ns + b.SECOND // 2 for ns in b.RECOMPILING.compile.phase_ns)
    view = b.view(replace(b.WARM, compile=replace(b.WARM.compile, phase_ns=spent)))
    polls = [at(0, STATES["recompiling"]), *(at(second, view) for second in warm_at)]
    (rank,) = columns(recorded(*polls))["ranks"]
    assert [name for _, name in rank["states"]] == ["recompiling", "warm"]
    assert rank["states"][-1][0] == rank["phases"][-1][0]


def paused(**reported: float | None) -> RankView:
    view = STATES["warm"]
    pauses = replace(view.figures.pauses, **reported)
    return replace(view, figures=replace(view.figures, pauses=pauses))


def test_short_saves_in_each_second_are_not_shown_as_a_long_one() -> None:
    views = [paused(checkpoint_seconds=0.05 * poll) for poll in range(25)]
    polls = [at(poll / 5, view) for poll, view in enumerate(views)]
    (rank,) = columns(recorded(*polls))["ranks"]
    assert [name for _, name in rank["pauses"]] == ["saving", None, "saving", None, "saving"]
    long = [paused(checkpoint_seconds=0.2 * poll) for poll in range(25)]
    (rank,) = columns(recorded(*(at(poll / 5, view) for poll, view in enumerate(long))))["ranks"]
    assert [name for _, name in rank["pauses"]] == ["saving"]


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


def test_at_most_one_hour_is_stored() -> None:
    history = recorded(*(at(second, stepped(second)) for second in range(SECONDS + 50)))
    (rank,) = columns(history)["ranks"]
    assert rank["steps"] == list(range(50, SECONDS + 50))
    assert columns(history, seconds=3)["ranks"][0]["steps"] == [3647, 3648, 3649]


def test_with_fewer_points_each_is_the_mean_of_as_many_seconds() -> None:
    gpus = [b.gpu(power_watts=float(watts)) for watts in (100, 200, 300, 500)]
    history = recorded(*(at(n, stepped(n), gpus=(gpu,)) for n, gpu in enumerate(gpus)))
    found = columns(history, points=2)
    assert found["seconds"] == 2
    assert found["gpus"][0]["power_watts"] == [150.0, 400.0]
    assert found["ranks"][0]["steps"] == [1, 3]
    assert found["at"] == [b.EPOCH + 1, b.EPOCH + 3]


def test_one_run_can_be_requested() -> None:
    other = b.in_every_state("bert")["warm"]
    found = columns(recorded(at(0, STATES["warm"], other)), run="bert")
    assert [rank["run"] for rank in found["ranks"]] == ["bert"]


def test_values_that_a_gpu_does_not_report_are_unknown() -> None:
    (gpu,) = columns(recorded(at(0, gpus=(b.gpu(power_watts=None),))))["gpus"]
    assert (gpu["power_watts"], gpu["utilization_ratio"]) == ([None], [0.99])
    assert (gpu["index"], gpu["power_limit_watts"]) == (0, 700.0)


def test_memory_is_bounded_and_the_least_recent_ranks_are_evicted() -> None:
    runs = [b.in_every_state(f"run{n}")["warm"] for n in range(4)]
    history = recorded(at(0, *runs[:3]), most_ranks=3)
    history.take(at(1, *runs))
    assert len(history.ranks) == 3  # all of them are seen now: there is no room
    history.take(at(3, *runs[1:]))
    history.take(at(5, *runs[1:]))
    names = {run for run, _ in history.ranks}
    assert names == {"run1", "run2", "run3"}


def test_living_ranks_are_stored_before_ended_ones() -> None:
    ended = [owned(20_001, f"a{n}", "finished") for n in range(5)]
    history = recorded(at(0, *ended, owned(20_001, "z", "warm")), most_ranks=4)
    assert ("z", 0) in history.ranks
    assert len(history.ranks) == 4


def test_a_new_mig_device_evicts_one_that_is_gone_and_no_other_gpu() -> None:
    first, second, gone, new = (b.gpu(uuid=f"GPU-{name}") for name in ("1", "2", "gone", "new"))
    history = recorded(at(0, gpus=(first, second, gone)), most_gpus=3)
    history.take(at(1, gpus=(first, new, second)))
    found = {one["uuid"]: one["power_watts"].count(None) for one in columns(history)["gpus"]}
    assert found == {"GPU-1": 0, "GPU-2": 0, "GPU-new": 1}


def test_a_rank_without_data_for_an_hour_is_evicted() -> None:
    history = recorded(at(0, STATES["warm"]), at(SECONDS, b.in_every_state("bert")["warm"]))
    assert [run for run, _ in history.ranks] == ["bert"]
    assert columns(LastHour()) == {"at": [], "seconds": 1, "ranks": [], "gpus": []}


def test_a_rank_that_ended_before_the_requested_period_is_omitted() -> None:
    """Else each of an hour's short runs has an empty lane in a chart of five minutes."""
    history = recorded(
        at(0, STATES["warm"], gpus=(b.gpu(),)), at(400, b.in_every_state("bert")["warm"])
    )
    found = columns(history, seconds=300)
    assert [rank["run"] for rank in found["ranks"]] == ["bert"]
    assert found["gpus"] == []
    assert {rank["run"] for rank in columns(history)["ranks"]} == {"bert", "gpt2"}
