"""The verdict at its edges: the moment before, the moment itself, and since when."""

from __future__ import annotations

import pytest

from support.facts import AT, MINUTE, compiled, facts
from support.ranks import SECOND, K, Rank
from warmwatch.shared import verdict
from warmwatch.shared.record import ENDS, CompileCounts, StepCounts, Warmup
from warmwatch.shared.states import State
from warmwatch.shared.verdict import judge


@pytest.mark.parametrize(
    ("known", "limit"),
    [
        ({}, MINUTE),
        ({"median_step_ns": 5.9 * SECOND}, MINUTE),
        ({"median_step_ns": 7.0 * SECOND}, 70 * SECOND),
        ({"longest_step_ns": 40 * SECOND}, 80 * SECOND),
        ({"compile": compiled(longest_rest_ns=50 * SECOND)}, 100 * SECOND),
        (
            {
                "median_step_ns": 9.0 * SECOND,
                "longest_step_ns": 40 * SECOND,
                "compile": compiled(longest_rest_ns=41 * SECOND),
            },
            90 * SECOND,
        ),
    ],
    ids=["a minute", "short steps", "ten medians", "two steps", "two rests", "the longest counts"],
)
def test_a_rank_is_stalled_from_the_end_of_its_limit_on(
    known: dict[str, object], limit: int
) -> None:
    rank = facts(**known)
    assert judge(rank, AT + limit).state is not State.STALLED
    judged = judge(rank, AT + limit + 1)
    assert (judged.state, judged.since_ns) == (State.STALLED, AT + limit)


@pytest.mark.parametrize(
    "later",
    [
        {"compile": compiled(last_end_ns=AT + MINUTE)},
        {"peers_compiled_ns": AT + MINUTE},
        {"attached_ns": AT + MINUTE},
        {"last_batch_ns": AT + MINUTE},
        {"working_ns": AT + MINUTE},
        {"pause_ns": AT + MINUTE},
        {"compile": compiled(saved_ns=AT + MINUTE)},
        {"compile": compiled(evaluated_ns=AT + MINUTE)},
    ],
    ids=[
        "its own compilation",
        "another rank's",
        "attached again",
        "a batch",
        "work",
        "another rank's pause",
        "a save that has ended",
        "an evaluation that has ended",
    ],
)
def test_the_time_of_a_stall_begins_with_the_last_sign_of_progress(
    later: dict[str, object],
) -> None:
    assert judge(facts(**later), AT + 2 * MINUTE).state is not State.STALLED
    assert judge(facts(**later), AT + 2 * MINUTE + 1).state is State.STALLED


@pytest.mark.parametrize(
    ("pause", "patience"), [("saving", 10 * MINUTE), ("evaluating", 60 * MINUTE)]
)
def test_a_pause_in_progress_is_a_stall_only_beyond_its_own_limit(
    pause: str, patience: int
) -> None:
    """Since the last step or later: a pause before a step has ended without a report."""
    for began in (AT, AT + 5):
        rank = facts(compile=compiled(**{f"{pause}_since_ns": began}))
        assert judge(rank, began + patience + MINUTE).state is not State.STALLED
        assert judge(rank, began + patience + MINUTE + 1).state is State.STALLED
    assert verdict.pause_ns(StepCounts(), CompileCounts()) == 0
    lost = facts(compile=compiled(**{f"{pause}_since_ns": AT - 1}))
    assert judge(lost, AT + MINUTE + 1).state is State.STALLED
    assert judge(facts(), AT + MINUTE + 1).state is State.STALLED


def test_a_notebook_without_a_running_cell_is_never_stalled() -> None:
    """Its user may be away, and no alert must fire."""
    idle = facts(compile=compiled(between_cells_since_ns=AT))
    assert judge(idle, AT + 10_000 * MINUTE).state is not State.STALLED
    lost = facts(compile=compiled(between_cells_since_ns=AT - 1))  # a step came after it
    assert judge(lost, AT + MINUTE + 1).state is State.STALLED
    again = facts(compile=compiled(between_cells_until_ns=AT + 500 * MINUTE))
    assert judge(again, AT + 501 * MINUTE).state is not State.STALLED
    assert judge(again, AT + 501 * MINUTE + 1).state is State.STALLED


def test_a_stalled_rank_retains_its_clean_steps() -> None:
    rank = facts(compile=compiled(clean_after=15))
    assert judge(rank, AT + MINUTE + 1).clean_steps == 5


@pytest.mark.parametrize(
    ("code", "phase"), [(0, None), (1, "dynamo"), (3, "inductor"), (8, "other")]
)
def test_the_phase_is_the_one_in_the_slot(code: int, phase: str | None) -> None:
    rank = facts(compile=compiled(begun=2, active_since_ns=AT, active_phase=code))
    assert judge(rank, AT + 1).phase == phase


def test_compiling_is_since_this_activity_and_recompiling_since_the_first_of_its_episode() -> None:
    known = {"begun": 3, "active_since_ns": AT, "episode_began_ns": AT - SECOND}
    never = judge(facts(compile=compiled(**known)), AT + 1)
    again = judge(facts(compile=compiled(**known, warmups=1)), AT + 1)
    assert (never.state, never.since_ns) == (State.COMPILING, AT)
    assert (again.state, again.since_ns) == (State.RECOMPILING, AT - SECOND)


@pytest.mark.parametrize(
    ("counts", "state", "since", "clean"),
    [
        ({"begun": 0, "activities_seen": 0, "first_step_ns": 7}, State.EAGER, 7, 20),
        (
            {"begun": 0, "activities_seen": 0, "first_step_ns": 7, "clean_after": 18},
            State.WARMING,
            7,
            2,
        ),
        ({"last_end_ns": 8, "clean_after": 18}, State.WARMING, 8, 2),
        (
            {"last_end_ns": 8, "clean_after": 18, "warmups": 1, "episode_began_ns": 5},
            State.RECOMPILING,
            5,
            2,
        ),
        ({"last_end_ns": 8, "last_warmup": Warmup(warm_ns=9), "warmups": 1}, State.WARM, 9, 20),
        ({"last_end_ns": 9, "last_warmup": Warmup(warm_ns=8), "warmups": 1}, State.WARM, 9, 20),
    ],
    ids=["eager", "not yet eager", "not yet warm", "not warm again", "warm", "warm just now"],
)
def test_each_state_begins_with_its_cause(
    counts: dict[str, object], state: State, since: int, clean: int
) -> None:
    judged = judge(facts(compile=compiled(**counts)), AT)
    assert (judged.state, judged.since_ns, judged.clean_steps) == (state, since, clean)


def test_a_compiling_or_new_rank_has_no_clean_steps() -> None:
    compiles = judge(facts(compile=compiled(begun=2, active_since_ns=AT)), AT)
    assert (compiles.state, compiles.clean_steps) == (State.COMPILING, 0)
    starts = judge(facts(steps=StepCounts(), attached_ns=6), AT)
    assert (starts.state, starts.since_ns, starts.clean_steps) == (State.STARTING, 6, 0)


@pytest.mark.parametrize(
    ("end", "alive", "state"),
    [
        ("finished", False, State.FINISHED),
        ("finished", True, State.EAGER),
        ("failed", True, State.FAILED),
        ("failed", False, State.FAILED),
        ("detached", True, State.FINISHED),
        ("", True, State.EAGER),
        ("", False, State.LOST),
    ],
)
def test_finished_needs_the_end_of_the_process_not_only_its_report(
    end: str, alive: bool, state: State
) -> None:
    """An end leaves the clean steps that there were."""
    counts = CompileCounts(end_code=ENDS.index(end), ended_ns=5, clean_after=16)
    judged = judge(facts(compile=counts, alive=alive, gone_ns=6), AT)
    assert (judged.state, judged.clean_steps) == (state, 4)


def test_an_end_dates_from_its_report_or_observation() -> None:
    """A process killed at its end is lost since it was detected, or since it reported its end."""
    for code, gone, since in ((1, 6, 5), (0, 6, 6), (0, None, 5)):
        counts = CompileCounts(end_code=code, ended_ns=5)
        judged = judge(facts(compile=counts, alive=False, gone_ns=gone), AT)
        assert judged.since_ns == since
    unsaid = CompileCounts(end_code=ENDS.index("failed"))
    assert judge(facts(compile=unsaid, alive=False, gone_ns=6), AT).since_ns == 6


def test_steps_that_are_eager_on_purpose_are_not_clean() -> None:
    """The first 17 of 20 steps did not compile: the rank is eager after K of the others."""
    for baseline, clean, state in ((17, 3, State.EAGER), (18, 2, State.WARMING)):
        judged = judge(facts(baseline_steps=baseline), AT)
        assert (judged.clean_steps, judged.state) == (clean, state)
    assert judge(facts(baseline_steps=30), AT).clean_steps == 0
    later = facts(baseline_steps=17, compile=compiled(clean_after=19))
    assert judge(later, AT).clean_steps == 1


def test_code_compiled_before_attaching_is_warm_and_not_eager() -> None:
    before = compiled(begun=0, activities_seen=0, graphs_before=1, first_step_ns=7)
    judged = judge(facts(compile=before), AT)
    assert (judged.state, judged.since_ns, judged.clean_steps) == (State.WARM, 7, 20)


@pytest.mark.parametrize(
    ("began", "stepped", "since"),
    [(0, 0, 50), (30, 0, 30), (30, 40, 40), (30, 60, 50), (0, 40, 50)],
    ids=[
        "the activity alone",
        "its warm-up",
        "the step that holds it",
        "a step that was marked meanwhile",
        "a step before a warm-up that is not known",
    ],
)
def test_a_rank_compiles_since_its_warm_up_or_its_last_step(
    began: int, stepped: int, since: int
) -> None:
    counts = compiled(active_since_ns=50, episode_began_ns=began)
    rank = facts(compile=counts, steps=StepCounts(steps=9, last_step_ns=stepped))
    assert verdict.open_since_ns(rank) == since


@pytest.mark.parametrize(("stepped", "since"), [(0, 40), (45, 45)])
def test_a_compiling_state_begins_after_a_long_pause_in_its_warm_up(
    stepped: int, since: int
) -> None:
    counts = compiled(active_since_ns=50, episode_began_ns=10, compiling_since_ns=40, warmups=0)
    rank = facts(compile=counts, steps=StepCounts(steps=9, last_step_ns=stepped))
    assert judge(rank, AT).since_ns == verdict.compiling_since_ns(rank) == since


@pytest.mark.parametrize(("clean_after", "warm"), [(20 - K, True), (20 - K + 1, False)])
def test_warm_needs_k_clean_steps(clean_after: int, warm: bool) -> None:
    assert judge(facts(compile=compiled(clean_after=clean_after)), AT).warm is warm


def test_an_activity_that_began_since_the_last_step_leaves_no_clean_step() -> None:
    """This holds even if the end came before the first poll."""
    rank = facts(compile=compiled(begun=2, ended=2))
    assert (judge(rank, AT).warm, judge(rank, AT).clean_steps) == (False, 0)


def test_a_slot_read_between_two_stores_has_no_clean_steps_below_zero() -> None:
    assert verdict.clean_steps(StepCounts(steps=4), compiled(clean_after=5)) == 0


def test_a_rank_that_has_only_compiled_is_not_starting() -> None:
    rank = facts(steps=StepCounts(), compile=compiled(last_end_ns=AT))
    assert judge(rank, AT).state is State.WARMING
    assert judge(rank._replace(compile=CompileCounts()), AT).state is State.STARTING


def test_a_rank_is_lost_since_it_was_found_gone() -> None:
    rank = Rank()
    assert rank.judge(alive=False).since_ns is None
    gone = judge(facts(alive=False, gone_ns=5), AT)
    assert (gone.state, gone.since_ns) == (State.LOST, 5)
