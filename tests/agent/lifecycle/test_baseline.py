"""The first steps, eager on purpose: how they are counted, judged, measured, and ended."""

from __future__ import annotations

import pytest

from support.ranks import SECOND, Rank
from warmwatch.lifecycle.eager_baseline import Baseline
from warmwatch.shared import record
from warmwatch.shared.states import State


class Stance:
    """A stance that the test, or the baseline, takes away."""

    def __init__(self) -> None:
        self.in_force, self.refuses = True, False

    def holds(self) -> bool:
        return self.in_force

    def restore(self) -> None:
        if self.refuses:
            raise RuntimeError("attempted to set_stance in a torch.compile region")
        self.in_force = False


def stepped(rank: Rank, *lengths: float) -> Rank:
    for seconds in lengths:
        rank.wait(seconds)
        rank.step()
    return rank


def compiled(rank: Rank, seconds: float) -> None:
    rank.ledger.begin("dynamo")
    rank.wait(seconds)
    rank.ledger.end("dynamo")


def test_baseline_steps_are_not_clean_and_never_make_the_rank_warm_or_eager() -> None:
    rank = Rank()
    rank.run_eagerly(20)
    assert rank.judge().state is State.STARTING
    for _ in range(20):
        judged = stepped(rank, 0.048).judge()
        assert (judged.state, judged.clean_steps, judged.warm) == (State.WARMING, 0, False)
    assert rank.warm_calls == 0
    rank.baseline_steps = 0  # a reader without support for baselines
    assert rank.judge().state is State.WARMING
    slot = rank.slot()
    assert (slot.steps.steps, sum(slot.clean_bins), sum(slot.compile_bins)) == (20, 0, 0)
    assert slot.clean_sum_ns == 0
    assert slot.compile.touched_steps == (0,) * record.MOST_TOUCHED
    assert [count for count, _ in rank.eager] == list(range(1, 21))
    assert {length for _, length in rank.eager} == {0, 48_000_000}  # the first is unknown
    assert [event for event, _, _ in rank.store.notes] == ["step", "baseline"]


def test_the_verdict_reads_from_the_record_that_baseline_steps_are_not_clean() -> None:
    """Whatever a record holds, no baseline step counts towards warm."""
    rank = stepped(Rank(), *[0.048] * 10)
    assert rank.judge().state is State.EAGER
    rank.baseline_steps = 20
    assert (rank.judge().state, rank.judge().clean_steps) == (State.WARMING, 0)
    rank.baseline_steps = 8
    assert (rank.judge().state, rank.judge().clean_steps) == (State.WARMING, 2)


def test_warm_up_and_speed_count_from_the_end_of_the_baseline() -> None:
    rank = Rank()
    rank.run_eagerly(5)
    stepped(rank, *[0.048] * 5)
    rank.wait(0.01)
    compiled(rank, 9)
    assert rank.judge().state is State.WARMING
    stepped(rank, 0.1, *[0.036] * 10)
    assert rank.judge().state is State.WARM
    slot = rank.slot()
    warmup = slot.compile.first_warmup
    assert (warmup.steps, warmup.ended_ns - warmup.began_ns) == (1, 9 * SECOND)
    assert (sum(slot.clean_bins), sum(slot.compile_bins)) == (10, 1)
    assert slot.clean_sum_ns == 360_000_000
    (warm,) = [values for event, _, values in rank.store.notes if event == "warm"]
    assert (warm["at"], warm["steps"]) == (9, 1)
    assert rank.warm_calls == 1


def test_the_rank_is_eager_three_steps_after_a_baseline_without_compilation() -> None:
    rank = Rank()
    rank.run_eagerly(5)
    states = [stepped(rank, 0.05).judge().state for _ in range(8)]
    assert states == [State.WARMING] * 7 + [State.EAGER]
    assert rank.warm_calls == 1


def test_a_baseline_step_that_compiles_is_counted_but_not_measured() -> None:
    """For example a Triton kernel, whose compilation no stance prevents."""
    rank = Rank()
    rank.run_eagerly(4)
    stepped(rank, 0.05, 0.05)
    compiled(rank, 2)
    assert stepped(rank, 0.05).judge().state is State.WARMING
    stepped(rank, 0.05)
    assert rank.eager == [(1, 0), (2, 50_000_000), (3, 0), (4, 50_000_000)]
    assert rank.slot().compile.touched_steps[0] == 3
    assert stepped(rank, 0.05, 0.05).judge().state is State.WARMING
    assert stepped(rank, 0.05).judge().state is State.WARM


def test_a_save_is_not_part_of_a_baseline_step() -> None:
    rank = Rank()
    rank.run_eagerly(4)
    stepped(rank, 0.05)
    rank.ledger.post("pause_began", {"what": "saving"})
    rank.wait(3)
    rank.ledger.post("pause_ended", {"what": "saving"})
    stepped(rank, 0.05)
    assert rank.eager[-1] == (2, 50_000_000)


def test_a_training_without_steps_during_the_baseline_is_stalled() -> None:
    rank = Rank()
    rank.run_eagerly(20)
    stepped(rank, 0.05, 0.05)
    rank.wait(61)
    assert rank.judge().state is State.STALLED


def test_the_baseline_can_be_ended_early_and_the_next_step_is_clean() -> None:
    rank = Rank()
    rank.run_eagerly(20)
    stepped(rank, *[0.05] * 4)
    rank.run_eagerly(4)
    states = [stepped(rank, 0.05).judge().state for _ in range(3)]
    assert states == [State.WARMING, State.WARMING, State.EAGER]
    assert len(rank.eager) == 4


def test_the_agents_own_stance_is_not_reported_as_the_users() -> None:
    rank = Rank()
    rank.pytorch.turned_off = "stance"
    holds = True
    rank.ledger.on_purpose(lambda: holds)
    rank.ledger.post("disabled", {})
    assert rank.slot().compile.disabled == 0
    holds = False
    rank.ledger.post("disabled", {})
    assert rank.slot().compile.disabled == record.DISABLED.index("stance")


@pytest.mark.parametrize(
    ("lengths", "median"), [((0, 3, 9, 5), 5), ((0, 3, 9), 6), ((0, 7), 7), ((0, 0), None)]
)
def test_the_baseline_is_the_median_of_the_known_lengths(
    lengths: tuple[int, ...], median: int | None
) -> None:
    stance = Stance()
    baseline = Baseline(len(lengths), stance)
    over = [baseline.step(count, length) for count, length in enumerate(lengths, 1)]
    assert over == [False] * (len(lengths) - 1) + [True]
    assert (baseline.median_ns, baseline.over, stance.in_force) == (median, True, False)


def test_the_baseline_ends_if_the_user_sets_another_stance() -> None:
    stance = Stance()
    baseline = Baseline(20, stance)
    assert not baseline.step(1, 0)
    assert not baseline.step(2, 5)
    stance.in_force = False
    assert baseline.step(3, 900)  # which may have compiled
    assert (baseline.steps, baseline.median_ns, baseline.renewed()) == (3, 5, None)


def test_the_baseline_continues_if_the_stance_cannot_be_restored() -> None:
    stance = Stance()
    baseline = Baseline(2, stance)
    stance.refuses = True
    with pytest.raises(RuntimeError):
        baseline.step(2, 5)
    assert not baseline.over
    stance.refuses = False
    assert baseline.step(3, 7)
    assert (baseline.steps, baseline.median_ns) == (3, 6)


def test_a_forked_child_measures_its_own_baseline() -> None:
    baseline = Baseline(4, Stance())
    baseline.step(1, 9)
    renewed = baseline.renewed()
    assert renewed is not None
    assert (renewed.steps, renewed.median_ns) == (4, None)
