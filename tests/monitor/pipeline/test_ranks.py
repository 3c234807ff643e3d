"""The ranks of a run compared: which ones wait, are missing, or differ."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from support import builders as b
from support.builders import NOW, SECOND
from support.documents import status
from support.values import replace
from warmwatch.shared.record import ENDS, CompileCounts, Slot, StepCounts
from warmwatch.shared.states import State
from warmwatch.shared.values import MOST_RANKS
from warmwatch_monitor.figures.rank import LimitedBy
from warmwatch_monitor.model.causes import with_laggard
from warmwatch_monitor.model.machine import GpuReading, ProcessReading
from warmwatch_monitor.model.records import RecordReading
from warmwatch_monitor.model.snapshot import RankView
from warmwatch_monitor.output.summary import details_of
from warmwatch_monitor.pipeline.runs import Circumstances, compiled_ns, group
from warmwatch_monitor.status.run import MOST_MISSING_LISTED
from warmwatch_monitor.status.words.run import numbers
from warmwatch_monitor.status.words.sentence import summary

STEPPED = StepCounts(steps=9, last_step_ns=b.ago(300))
LONG_AGO = StepCounts(steps=5, last_step_ns=b.ago(250))
WARMED = CompileCounts(begun=1, ended=1, activities_seen=1, last_end_ns=b.ago(310), warmups=1)
COMPILING = replace(WARMED, begun=2, active_since_ns=b.ago(290), episode_began_ns=b.ago(290))
COMPILED = replace(WARMED, begun=2, ended=2, last_end_ns=b.ago(20))


def reading(rank: int, *, alive: bool = True, **slot: Any) -> RecordReading:
    return RecordReading(
        folder=f"{rank}-{slot.get('attempt', 0)}", slot=b.slot(rank=rank, **slot), alive=alive
    )


def states(*readings: RecordReading) -> dict[int, State]:
    (run,) = group(readings, Circumstances(now_ns=NOW))
    return {view.rank: view.judgement.state for view in run.ranks}


def waiting(peer: RecordReading) -> State:
    """The state of rank 0, whose last step is 300 s ago, in a run with ``peer``."""
    return states(reading(0, steps=STEPPED, compile=WARMED), peer)[0]


def test_a_rank_that_waits_for_one_that_compiles_is_not_stalled() -> None:
    """It is not stalled until the stall limit has passed since the other one was ready."""
    assert waiting(reading(1, steps=STEPPED, compile=COMPILING)) is not State.STALLED
    assert waiting(reading(1, steps=STEPPED, compile=COMPILED)) is not State.STALLED


def test_a_rank_is_stalled_if_no_rank_compiles() -> None:
    assert waiting(reading(1, steps=STEPPED, compile=WARMED)) is State.STALLED
    alone = states(reading(0, steps=STEPPED, compile=replace(WARMED, last_end_ns=b.ago(301))))
    assert alone == {0: State.STALLED}
    dead = reading(1, alive=False, steps=STEPPED, compile=COMPILING)
    assert waiting(dead) is State.STALLED


def test_a_rank_waits_for_the_one_that_compiled_last() -> None:
    for lately in (1, 2):
        last = {1: b.ago(310), 2: b.ago(309), lately: b.ago(20)}
        others = [
            reading(n, steps=STEPPED, compile=replace(COMPILED, last_end_ns=last[n])) for n in last
        ]
        first = reading(0, steps=STEPPED, compile=WARMED)
        assert states(first, *others)[0] is not State.STALLED


def test_a_rank_compiles_if_its_record_shows_it_and_it_is_alive() -> None:
    assert compiled_ns(reading(0, steps=STEPPED), NOW) == 0
    assert compiled_ns(reading(0, alive=False, steps=STEPPED, compile=COMPILED), NOW) == 0
    assert compiled_ns(reading(0, steps=STEPPED, compile=COMPILING), NOW) == NOW


def test_a_rank_does_not_wait_for_itself() -> None:
    """Two that stopped compiling at the same moment, long ago, are both stalled."""
    long_ago = replace(WARMED, last_end_ns=b.ago(299))
    both = [reading(rank, steps=STEPPED, compile=long_ago) for rank in (0, 1)]
    assert set(states(*both).values()) == {State.STALLED}


def test_ranks_of_an_earlier_start_are_history() -> None:
    """After a restart with fewer ranks, no rank waits for the missing ones."""
    before = [
        reading(rank, alive=False, attached=300, launch="parent:7", steps=STEPPED)
        for rank in range(4)
    ]
    after = [
        reading(rank, attached=100, launch="parent:7", attempt=1, steps=STEPPED)
        for rank in range(2)
    ]
    assert states(*before, *after).keys() == {0, 1}
    assert states(*before).keys() == {0, 1, 2, 3}


def test_ranks_of_an_earlier_start_are_history_after_the_later_one_has_ended() -> None:
    """Two steps of a batch job: two ranks train and fail, one evaluates and finishes."""
    failed = replace(WARMED, ended_ns=b.ago(200), end_code=ENDS.index("failed"))
    trained = [
        reading(n, alive=False, attached=300, launch="slurm:3.0", steps=LONG_AGO, compile=failed)
        for n in (0, 1)
    ]
    finished = replace(WARMED, ended_ns=b.ago(10), end_code=ENDS.index("finished"))
    evaluated = reading(
        0, alive=False, attached=150, launch="process:9", pid=9, steps=STEPPED, compile=finished
    )
    assert states(*trained, evaluated) == {0: State.FINISHED}


@pytest.mark.parametrize(("gone_ns", "stepped"), [(b.ago(80), 250), (None, 90), (None, 100)])
def test_two_overlapping_starts_remain_after_their_end(gone_ns: int | None, stepped: float) -> None:
    one = reading(0, alive=False, attached=100, launch="parent:7", steps=STEPPED)
    steps = replace(STEPPED, last_step_ns=b.ago(stepped))
    other = reading(1, alive=False, attached=300, launch="parent:8", steps=steps)
    other = structs.replace(other, gone_ns=gone_ns)
    assert states(one, other).keys() == {0, 1}


def test_a_start_killed_during_a_compilation_lived_until_then() -> None:
    """Seen by a monitor that starts later: the start ended unseen and without a step."""
    one = reading(0, alive=False, attached=100, launch="parent:7", steps=STEPPED)
    compiling = CompileCounts(begun=1, active_since_ns=b.ago(90), episode_began_ns=b.ago(90))
    other = reading(1, alive=False, attached=120, launch="parent:8", compile=compiling)
    assert states(one, other)[1] is State.LOST


def test_the_latest_start_begins_with_its_first_rank() -> None:
    """A rank last seen before the second one attached still lived at the same time as the first."""
    latest = [
        reading(rank, alive=False, attached=attached, launch="parent:8", steps=STEPPED)
        for rank, attached in ((0, 150), (1, 100))
    ]
    steps = replace(STEPPED, last_step_ns=b.ago(120))
    other = reading(2, alive=False, attached=300, launch="parent:7", steps=steps)
    assert states(*latest, other).keys() == {0, 1, 2}


def test_with_two_live_starts_a_rank_that_died_before_the_later_one_is_history() -> None:
    first = reading(0, launch="parent:7", attached=300, steps=STEPPED)
    later = reading(1, launch="parent:8", attached=100, steps=STEPPED)
    dead = reading(2, alive=False, launch="parent:6", attached=200, steps=STEPPED)
    assert states(first, later, dead).keys() == {0, 1}


@pytest.mark.parametrize("launch", ["parent:7", "parent:8"], ids=["the same", "another"])
def test_a_lost_rank_of_this_start_or_of_another_launcher_remains(launch: str) -> None:
    """Two launchers of one run on one host, as for two nodes: neither hides the other's losses."""
    living = reading(0, launch="parent:7", attached=100, steps=STEPPED)
    lost = reading(1, alive=False, launch=launch, attached=90, steps=STEPPED)
    assert states(living, lost)[1] is State.LOST


def of_run(*slots: Slot) -> dict[str, Any]:
    snapshot = b.snapshot(*(b.view(b.as_rank(one, n, len(slots))) for n, one in enumerate(slots)))
    run: dict[str, Any] = status(snapshot)["runs"][0]
    return run


def compiled(**counts: Any) -> Slot:
    return replace(b.WARM, compile=replace(b.WARM.compile, **counts))


def test_ranks_that_did_the_same_have_no_differences() -> None:
    skew = of_run(b.WARM, b.WARM)["skew"]
    assert skew["differences"] == []
    assert skew["compile_seconds"]["min"] == skew["compile_seconds"]["max"] > 0
    assert of_run(b.WARM)["skew"] is None


def test_ranks_that_compiled_different_graphs_are_reported() -> None:
    longer = tuple(ns + 40 * SECOND * (n == 0) for n, ns in enumerate(b.WARM.compile.phase_ns))
    other = compiled(
        graphs=b.WARM.compile.graphs + 2,
        recompiles_by_category=b.categories(shape=2),
        phase_ns=longer,
    )
    run = of_run(b.WARM, other, b.WARM)
    least = b.WARM.compile.graphs
    assert run["skew"]["differences"] == [
        (
            f"ranks compiled different things: {least + 2} graphs in rank 1, {least} in rank 0; "
            "2 recompiles in rank 1, 0 in rank 0"
        ),
        "only rank 1 recompiled (shape)",
        "rank 1 compiled 40 s longer than rank 0",
    ]
    assert run["summary"].endswith("; rank 1 also recompiled (shape)")
    seconds = run["skew"]["compile_seconds"]
    assert (seconds["max_rank"], seconds["max"] - seconds["min"]) == (1, pytest.approx(40))


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        (
            {"recompiles_by_category": b.categories(grad_mode=1)},
            "rank 1 also compiled its evaluation",
        ),
        ({"phase_ns": b.phases(inductor=192.2)}, "rank 1 compiled 79 s longer than the others"),
        ({"graphs": 3}, "3 graphs in rank 1, 1 in rank 0"),
    ],
)
def test_the_sentence_contains_one_difference(counts: dict[str, Any], expected: str) -> None:
    run = of_run(b.WARM, compiled(**counts), b.WARM)
    assert run["summary"] == f"gpt2: {b.head(b.view(b.WARM))}; {expected}"
    assert run["skew"]["differences"]


def with_step(view: RankView, times: float, behind: int = 90) -> RankView:
    """``view`` with a step of so many times its length, and so many steps behind."""
    steps = view.figures.steps
    assert steps.length
    steps = replace(steps, recent=times * steps.length, count=steps.count - behind)
    return replace(view, figures=replace(view.figures, steps=steps))


def gpu_of(rank: int, **values: Any) -> GpuReading:
    known = {"clocks_hertz": (("sm", 1.98e9),), "processes": (7,), **values}
    return b.gpu(rank, **known)


def of_views(*views: RankView) -> dict[str, Any]:
    run: dict[str, Any] = status(b.snapshot(*views))["runs"][0]
    return run


@pytest.mark.parametrize(
    ("values", "cause"),
    [
        ({}, ""),
        ({"clocks_hertz": (("sm", 1.2e9),)}, ": GPU clock of rank 1 1200 MHz (1980 in others)"),
        ({"clocks_hertz": ()}, ""),
        ({"power_limit_watts": 500.0}, ": GPU power limit of rank 1 500 W (700 in others)"),
        (
            {"throttled": (("hw_thermal_slowdown", True), ("sw_power_cap", True))},
            ": GPU of rank 1 throttled (hw_thermal_slowdown)",
        ),
        ({"processes": (7, 8)}, ": another process on the GPU of rank 1"),
    ],
)
def test_a_rank_with_longer_steps_is_named_with_the_amount_and_its_causes(
    values: dict[str, Any], cause: str
) -> None:
    views = [
        b.view(b.as_rank(b.WARM, rank, 3), gpus=(gpu_of(rank, **(values if rank == 1 else {})),))
        for rank in range(3)
    ]
    run = of_views(views[0], with_step(views[1], 1.12), views[2])
    words = f"rank 1 takes 12 % longer for a step than the others{cause}"
    assert run["skew"]["differences"] == [words]
    assert words in [*details_of(run), run["summary"].rpartition("; ")[2]]
    steps = run["skew"]["step_seconds"]
    assert (steps["max_rank"], steps["max"] / steps["min"]) == (1, pytest.approx(1.12))
    changes = with_step(views[1], 1.5)
    changes = replace(
        changes,
        figures=replace(changes.figures, steps=replace(changes.figures.steps, trend="faster")),
    )
    for same in (with_step(views[1], 1.05), with_step(views[1], 1.5, behind=1), changes):
        assert of_views(views[0], same, views[2])["skew"]["differences"] == []


def test_ranks_whose_records_were_read_at_different_times_are_in_lockstep() -> None:
    """At 50 ms a step, 5 steps are a quarter of a second."""
    views = [b.view(b.as_rank(b.WARM, rank, 2)) for rank in range(2)]
    short = [with_step(view, 0.05 / (view.figures.steps.length or 1.0)) for view in views]
    for behind, count in ((5, 0), (20, 1)):
        slow = with_step(short[1], 1.5, behind=behind)
        assert len(of_views(short[0], slow)["skew"]["differences"]) == count


def test_a_rank_that_waits_longer_for_batches_is_named() -> None:
    slots = [b.as_rank(b.WARM, rank, 2) for rank in range(2)]
    took = 1e9 * time_without_compiling(b.view(slots[1]))
    waiting = [
        replace(slot, steps=slot.steps._replace(batches=9, batch_wait_ns=round(share * took)))
        for slot, share in zip(slots, (0.02, 0.3), strict=True)
    ]
    fast, slow = (b.view(slot) for slot in waiting)
    words = "rank 1 takes 2.5 times as long for a step as the other"
    cause = "rank 1 has waited for batches 30 % of its time (others 2 %)"
    run = of_views(fast, with_step(slow, 2.5))
    assert run["skew"]["differences"] == [f"{words}: {cause}"]
    limit = LimitedBy(verdict="input", share=0.8, evidence=("80 % of the time waits for batches",))
    run = of_views(fast, replace(with_step(slow, 2.5), limited_by=limit))
    assert run["skew"]["differences"] == [words]  # the limit has it, of the last seconds


def test_a_wait_for_the_first_batch_is_no_cause() -> None:
    """It is as long as all steps, but a small share of the time since the start."""
    views = [b.view(b.as_rank(b.WARM, rank, 2)) for rank in range(2)]
    for number, waited in enumerate((0.0, 0.9)):
        figures = views[number].figures
        trained = time_without_compiling(views[number])
        who = replace(figures.who, attached_at=(figures.who.attached_at or 0.0) - 20 * trained)
        steps = replace(figures.steps, batch_wait_seconds=waited * trained, batches=9)
        views[number] = replace(views[number], figures=replace(figures, who=who, steps=steps))
    (words,) = of_views(views[0], with_step(views[1], 2.5))["skew"]["differences"]
    assert words == "rank 1 takes 2.5 times as long for a step as the other"


def time_without_compiling(view: RankView) -> float:
    figures = view.figures
    assert figures.steps.last_at
    assert figures.who.attached_at
    return figures.steps.last_at - figures.who.attached_at - figures.compile.seconds


@pytest.mark.parametrize(
    ("ratio", "cause"),
    [
        (0.45, ": rank 1 has waited for a CPU 45 % of its time (others 2 %)"),
        (0.1, ""),
        (None, ""),
    ],
)
def test_a_rank_that_waits_longer_for_a_cpu_is_named(ratio: float | None, cause: str) -> None:
    views = [
        b.view(
            b.as_rank(b.WARM, rank, 3),
            process=ProcessReading(pid=7, cpu_seconds=9.0, resident_bytes=1, queued_ratio=queued),
        )
        for rank, queued in enumerate((0.02, ratio, 0.02))
    ]
    run = of_views(views[0], with_step(views[1], 1.8), views[2])
    words = "rank 1 takes 80 % longer for a step than the others"
    assert run["skew"]["differences"] == [words + cause]


def test_the_rank_that_the_others_wait_for_has_its_causes() -> None:
    waits = LimitedBy(verdict="communication", share=0.7, evidence=("kernels run",))
    views = [
        replace(
            b.view(
                b.as_rank(b.WARM, rank, 3),
                gpus=(gpu_of(rank, clocks_hertz=(("sm", 1.2e9 if rank == 1 else 1.98e9),)),),
            ),
            limited_by=LimitedBy(verdict="compute", share=0.9) if rank == 1 else waits,
        )
        for rank in range(3)
    ]
    first, last, _ = with_laggard(views)
    assert first.limited_by is not None
    assert last.limited_by is not None
    cause = "GPU clock of rank 1 1200 MHz (1980 in others)"
    assert last.limited_by.evidence == ("the other 2 ranks wait for rank 1", cause)
    assert first.limited_by.evidence == (
        *("waits for rank 1, which compute limits", "kernels run", cause),
    )


def test_differences_are_not_reported_while_a_rank_compiles() -> None:
    assert of_run(b.WARM, b.RECOMPILING)["skew"]["differences"] == []


def test_a_count_that_a_rank_lacks_is_not_compared() -> None:
    mute = replace(b.WARM, identity=replace(b.WARM.identity, missing=("compilations",)))
    skew = of_run(mute, b.WARM)["skew"]
    assert skew["graphs"] is None
    assert skew["compile_seconds"] is not None


def test_ranks_that_are_not_expected_to_have_the_agent_are_not_missing() -> None:
    identity = replace(b.WARM.identity, world_size=8, expected_ranks=1)
    seen = replace(b.WARM, identity=identity)
    run = status(b.snapshot(b.view(seen)))["runs"][0]
    assert (run["world_size"], run["missing_ranges"], run["missing_count"]) == (8, [], 0)
    assert "not seen" not in run["summary"]
    two = replace(b.WARM, identity=replace(identity, expected_ranks=2))
    assert status(b.snapshot(b.view(two)))["runs"][0]["missing_count"] == 7


def test_ranks_on_other_hosts_are_known_to_be_missing() -> None:
    here = [b.view(b.as_rank(b.WARM, rank, 8)) for rank in (0, 1, 2, 5)]
    run = status(b.snapshot(*here))["runs"][0]
    assert (run["world_size"], run["missing_ranks"]) == (8, [3, 4, 6, 7])
    expected = "; 4 of 8 ranks (ranks 3-4, 6-7) are not seen here"
    assert summary(b.snapshot(*here)).endswith(expected)


def test_missing_ranks_of_a_huge_world_are_ranges() -> None:
    run = status(b.snapshot(b.view(b.as_rank(b.WARM, 5, MOST_RANKS))))["runs"][0]
    assert run["missing_ranges"] == [[0, 4], [6, MOST_RANKS - 1]]
    assert run["missing_count"] == MOST_RANKS - 1
    assert run["missing_ranks"] == [*range(5), *range(6, MOST_MISSING_LISTED + 1)]
    assert len(json.dumps(run)) < 10_000
    assert run["summary"].endswith(
        "999999 of 1000000 ranks (ranks 0-4, 6-999999) are not seen here"
    )


def test_gaps_between_many_ranks_are_listed_up_to_a_limit_and_all_counted() -> None:
    views = [b.view(b.as_rank(b.WARM, rank, 1000)) for rank in range(0, 600, 2)]
    run = status(b.snapshot(*views))["runs"][0]
    assert len(run["missing_ranges"]) == MOST_MISSING_LISTED
    assert run["missing_ranges"][:2] == [[1, 1], [3, 3]]
    assert run["missing_count"] == 700


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([3], "rank 3"),
        ([0, 1, 2, 7], "ranks 0-2, 7"),
        (list(range(0, 40, 2)), "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 12 more"),
    ],
)
def test_ranks_are_listed_as_ranges(given: list[int], text: str) -> None:
    assert numbers(given) == text


def test_compile_time_does_not_go_back_if_the_activity_has_ended_since_the_reading() -> None:
    """A record is read some time before the answer: what ended in between was not counted on."""
    counts = replace(
        b.COMPILING.compile,
        active_since_ns=b.ago(10),
        accounted_ns=b.ago(10),
        phase_ns=b.phases(inductor=30),
    )
    open_ = RecordReading(folder="/d", slot=replace(b.COMPILING, compile=counts), alive=True)
    ended = replace(
        counts,
        active_since_ns=0,
        active_phase=0,
        ended=counts.begun,
        phase_ns=b.phases(inductor=39.95),
        last_end_ns=b.ago(0.05),
    )
    over = RecordReading(folder="/d", slot=replace(b.COMPILING, compile=ended), alive=True)

    def seconds(reading: RecordReading, read_ns: int) -> float:
        (run,) = group([reading], Circumstances(now_ns=b.NOW, read_ns=read_ns))
        return run.ranks[0].figures.compile.seconds

    before, after = seconds(open_, b.ago(0.1)), seconds(over, b.NOW)
    assert before == pytest.approx(39.9)
    assert before <= after == pytest.approx(39.95)
