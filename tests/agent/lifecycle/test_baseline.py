"""The first steps, eager on purpose: how they are counted, judged, measured, and ended."""

from __future__ import annotations

from support.ranks import Rank
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


def test_the_baseline_ends_if_the_user_sets_another_stance() -> None:
    stance = Stance()
    baseline = Baseline(20, stance)
    assert not baseline.step(1, 0)
    assert not baseline.step(2, 5)
    stance.in_force = False
    assert baseline.step(3, 900)  # which may have compiled
    assert (baseline.steps, baseline.median_ns, baseline.renewed()) == (3, 5, None)


def test_a_forked_child_measures_its_own_baseline() -> None:
    baseline = Baseline(4, Stance())
    baseline.step(1, 9)
    renewed = baseline.renewed()
    assert renewed is not None
    assert (renewed.steps, renewed.median_ns) == (4, None)
