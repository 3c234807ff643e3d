"""Grouping: which record speaks for which rank of which run."""

from __future__ import annotations

import random

import pytest

from support import builders
from support.builders import NOW
from support.values import replace
from warmwatch.record import CompileCounts, StepCounts
from warmwatch.verdict import State
from warmwatch_monitor.model import ProcessReading, RecordReading
from warmwatch_monitor.runs import group, view

TELLING = StepCounts(steps=1, last_step_ns=NOW)


def reading(
    folder: str, *, alive: bool = True, pid: int | None = None, **slot: object
) -> RecordReading:
    return RecordReading(
        folder=folder,
        slot=builders.slot(**slot),  # type: ignore[arg-type]
        alive=alive,
        pid=pid,
    )


def speaker(*rivals: RecordReading) -> str:
    (run,) = group(rivals, {}, NOW)
    (rank,) = run.ranks
    return rank.reading.folder


def test_runs_are_in_order_of_names_and_ranks_in_order() -> None:
    readings = [
        reading(f"{run}{rank}", run=run, rank=rank) for run in ("b", "a") for rank in (10, 2, 0)
    ]
    random.Random(1).shuffle(readings)
    runs = group(readings, {}, NOW)
    assert [run.run for run in runs] == ["a", "b"]
    assert [rank.rank for rank in runs[0].ranks] == [0, 2, 10]


@pytest.mark.parametrize(
    ("loser", "winner"),
    [
        (reading("older", attached=20), reading("newer", attached=10)),
        (reading("dead", alive=False, attached=10), reading("living", attached=20)),
        (
            reading("dead with facts", alive=False, attached=10, steps=TELLING),
            reading("living", attached=20),
        ),
        (reading("mute", attached=10), reading("steps", attached=20, steps=TELLING)),
        (
            reading("mute", attached=10),
            reading("compiles", attached=20, compile=CompileCounts(begun=1)),
        ),
        (
            reading("dead with facts", alive=False, attached=20, steps=TELLING),
            reading("dead", alive=False, attached=10),
        ),
    ],
    ids=lambda rival: rival.folder,
)
def test_of_two_records_of_one_rank_the_right_one_speaks(
    loser: RecordReading, winner: RecordReading
) -> None:
    """A living one before a dead, of the living one with facts, then the newest."""
    assert speaker(loser, winner) == speaker(winner, loser) == winner.folder


def test_a_run_is_where_its_least_advanced_living_rank_is() -> None:
    warm = StepCounts(steps=9, last_step_ns=NOW)
    (run,) = group(
        [
            reading("0", rank=0, steps=warm),
            reading("1", rank=1, steps=TELLING),
            reading("2", rank=2, alive=False, steps=TELLING),
        ],
        {},
        NOW,
    )
    assert [rank.judgement.state for rank in run.ranks] == [State.EAGER, State.WARMING, State.LOST]
    assert run.state is State.WARMING


def test_a_rank_gets_what_the_host_says_of_its_own_process() -> None:
    process = ProcessReading(pid=7, cpu_seconds=1.0, resident_bytes=2)
    (run,) = group([reading("0", pid=7), reading("1", rank=1, pid=8)], {7: process}, NOW)
    assert [rank.process for rank in run.ranks] == [process, None]


def test_the_median_step_bears_on_when_a_rank_counts_as_stalled() -> None:
    """Steps of 20 s: stalled after 200 s, not after 60."""
    steps = StepCounts(steps=9, last_step_ns=builders.ago(150))
    slow = reading("slow", steps=steps, clean=(20 * 10**9,) * 9)
    assert view(slow, NOW).judgement.state is State.EAGER
    assert view(slow, NOW + 60 * 10**9).judgement.state is State.STALLED
    fast = reading("fast", steps=steps, clean=(10**9,) * 9)
    assert view(fast, NOW).judgement.state is State.STALLED


FINISHED = CompileCounts(end_code=1, ended_ns=builders.ago(2))
UNSEEN = reading("unseen", alive=False)


def gone(seconds: float) -> RecordReading:
    """A rank whose process was seen to be gone that long ago."""
    return replace(reading("gone", alive=False), gone_ns=builders.ago(seconds))


@pytest.mark.parametrize(
    ("ranks", "together"),
    [
        ([gone(30), gone(25), gone(20)], True),
        ([gone(3), reading("finished", alive=False, compile=FINISHED)], True),
        ([gone(30), gone(19)], False),
        ([gone(30), reading("living")], False),
        ([UNSEEN, reading("living")], False),
        ([reading("finished", compile=FINISHED), reading("living")], False),
        ([reading("living"), reading("living")], None),
        ([gone(30), UNSEEN], None),
        ([gone(30)], None),
    ],
    ids=[
        "all within ten seconds",
        "however they ended",
        "one long before the other",
        "a part is gone",
        "a part is gone, nobody knows since when",
        "a part has finished",
        "none is gone",
        "nobody saw when one went",
        "one rank cannot tell",
    ],
)
def test_a_run_ended_together_where_all_its_ranks_did(
    ranks: list[RecordReading], together: bool | None
) -> None:
    """What cancels a job ends all of it; what breaks a rank leaves the others, for a while."""
    numbered = [
        replace(one, slot=replace(one.slot, identity=replace(one.slot.identity, rank=number)))
        for number, one in enumerate(ranks)
    ]
    (run,) = group(numbered, {}, NOW)
    assert run.ended_together is together
