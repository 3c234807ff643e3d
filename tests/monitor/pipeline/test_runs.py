"""Grouping: which record represents which rank of which run."""

from __future__ import annotations

import random
from itertools import permutations

import pytest

from support import builders
from support.builders import NOW, view_of
from support.values import replace
from warmwatch.shared.record import CompileCounts, StepCounts, Warmup
from warmwatch.shared.states import State
from warmwatch_monitor.model.machine import ProcessReading
from warmwatch_monitor.model.records import Death, RecordReading, owned
from warmwatch_monitor.pipeline.figures import cached_figures
from warmwatch_monitor.pipeline.judging import Judging, OtherReadings
from warmwatch_monitor.pipeline.runs import Circumstances, Peers, facts, group

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


def chosen(*rivals: RecordReading) -> str:
    (run,) = group(rivals, Circumstances(now_ns=NOW))
    (rank,) = run.ranks
    return rank.reading.folder


def test_runs_are_sorted_by_name_and_ranks_by_number() -> None:
    readings = [
        reading(f"{run}{rank}", run=run, rank=rank) for run in ("b", "a") for rank in (10, 2, 0)
    ]
    random.Random(1).shuffle(readings)
    runs = group(readings, Circumstances(now_ns=NOW))
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
def test_the_best_record_of_a_rank_is_shown(loser: RecordReading, winner: RecordReading) -> None:
    """A live record first, then one with facts, then the newest."""
    assert chosen(loser, winner) == chosen(winner, loser) == winner.folder


@pytest.mark.parametrize(
    ("launch", "pid", "world_size", "helps"),
    [
        ("process:7:4026:99", 8, None, True),
        ("process:7:4026:99", 7, None, False),
        ("process:7:4026:99", 8, 2, False),
        ("parent:7:4026:99", 8, None, False),
        ("process", 8, None, True),
        ("slurm:7.0", 8, None, False),
    ],
    ids=[
        "a child that nothing made a rank",
        "the run's process itself",
        "a child that is a rank",
        "a child of a launcher",
        "of a process that is not known",
        "of a scheduler",
    ],
)
def test_a_helper_never_replaces_a_rank(
    launch: str, pid: int, world_size: int | None, helps: bool
) -> None:
    """Not even if it is newer and has facts while the rank has none."""
    rank = reading("rank", attached=20, launch="process:7:4026:99")
    rank = replace(rank, slot=replace(rank.slot, identity=replace(rank.slot.identity, pid=7)))
    child = {"launch": launch, "world_size": world_size}
    newer = reading("newer", attached=10, steps=TELLING, **child)
    newer = replace(newer, slot=replace(newer.slot, identity=replace(newer.slot.identity, pid=pid)))
    assert chosen(rank, newer) == chosen(newer, rank) == ("rank" if helps else "newer")


def of(pid: int, folder: str, **known: object) -> RecordReading:
    """One of the process 7 and what it has started."""
    slot = {"launch": "process:7:4026:99", **known}
    one = reading(folder, **slot)  # type: ignore[arg-type]
    return replace(one, slot=replace(one.slot, identity=replace(one.slot.identity, pid=pid)))


PARENT = of(7, "parent", attached=30)
RANK: dict[str, object] = {"world_size": 2, "steps": TELLING}


@pytest.mark.parametrize("alive", [True, False])
def test_a_parent_that_waits_for_its_ranks_is_not_a_rank(*, alive: bool) -> None:
    """It outlives them and imported PyTorch's compiler before it started them."""
    rank = of(8, "rank", alive=alive, attached=20, **RANK)
    assert chosen(PARENT, rank) == chosen(rank, PARENT) == "rank"


def test_the_last_of_consecutively_started_ranks_is_shown() -> None:
    first = of(8, "a rank that died", alive=False, attached=20, **RANK)
    again = of(9, "a restarted rank", alive=False, attached=10, **RANK)
    for order in permutations((PARENT, first, again)):
        assert chosen(*order) == "a restarted rank"


@pytest.mark.parametrize(
    "other", [{"attached": 40}, {"attached": 20, "launch": "process:6:4026:98"}], ids=str
)
def test_a_live_record_is_not_replaced_by_a_dead_one_of_another_start(
    other: dict[str, object],
) -> None:
    """The dead one attached earlier, or belongs to another launch."""
    dead = of(8, "dead", alive=False, **RANK, **other)
    assert chosen(PARENT, dead) == chosen(dead, PARENT) == "parent"


def test_the_chosen_record_does_not_depend_on_their_order() -> None:
    """A helper is replaced by its parent process, and that one by the rank that it started."""
    rivals = (
        PARENT,
        of(8, "rank", attached=20, alive=False, **RANK),
        of(9, "helper", attached=10, steps=TELLING),
    )
    assert {chosen(*order) for order in permutations(rivals)} == {"rank"}


def test_a_run_has_the_state_of_its_least_advanced_living_rank() -> None:
    warm = StepCounts(steps=9, last_step_ns=NOW)
    (run,) = group(
        [
            reading("0", rank=0, steps=warm),
            reading("1", rank=1, steps=TELLING),
            reading("2", rank=2, alive=False, steps=TELLING),
        ],
        Circumstances(now_ns=NOW),
    )
    assert [rank.judgement.state for rank in run.ranks] == [State.EAGER, State.WARMING, State.LOST]
    assert run.state is State.WARMING


def test_a_rank_of_an_earlier_start_that_is_read_later_joins_it() -> None:
    """A poll without time for all records leaves some to the next one."""
    ended = [
        reading(str(rank), alive=False, attached=20, launch="first", rank=rank, world_size=2)
        for rank in range(2)
    ]
    latest, around = reading("latest", attached=10, launch="second"), OtherReadings(now_ns=NOW)
    judging = Judging()
    judging.of([ended[1], latest], around, None)
    assert [[view.rank for view in run.ranks] for run in judging.earlier] == [[1]]
    judging.of([*ended, latest], around, None)
    (run,) = judging.earlier
    assert [view.rank for view in run.ranks] == [0, 1]
    judging.of([latest, *ended], around, None)
    assert judging.earlier == (run,)
    assert judging.earlier[0] is run, "what has not changed is not judged again"


def test_a_rank_gets_the_host_data_of_its_own_process() -> None:
    process = ProcessReading(pid=7, cpu_seconds=1.0, resident_bytes=2)
    (run,) = group(
        [reading("0", pid=7), reading("1", rank=1, pid=8)],
        Circumstances(now_ns=NOW, processes={7: process}),
    )
    assert [rank.process for rank in run.ranks] == [process, None]


def test_the_stall_limit_depends_on_the_median_step() -> None:
    """Steps of 20 s: stalled after 200 s, not after 60."""
    steps = StepCounts(steps=9, last_step_ns=builders.ago(150))
    slow = reading("slow", steps=steps, clean=(20 * 10**9,) * 9)
    assert view_of(slow).judgement.state is State.EAGER
    assert view_of(slow, NOW + 60 * 10**9).judgement.state is State.STALLED
    fast = reading("fast", steps=steps, clean=(10**9,) * 9)
    assert view_of(fast).judgement.state is State.STALLED


def test_a_rank_has_the_devices_that_it_names_in_that_order() -> None:
    """CUDA and NVML may use different prefixes; a device that NVML does not report is left out."""
    whole, part, other = (builders.gpu(n, uuid=u) for n, u in enumerate(("GPU-a", "MIG-b", "c")))
    using = [
        reading("both", rank=0, gpus=("GPU-b", "GPU-a")),
        reading("unread", rank=1, gpus=("GPU-x",)),
        reading("none", rank=2),
        reading("mig", rank=3, gpus=("MIG-GPU-a",)),
        reading("as it is", rank=4, gpus=("c",)),
    ]
    expected = {
        "both": (part, whole),
        "unread": (),
        "none": (),
        "mig": (whole,),
        "as it is": (other,),
    }
    devices = (whole, part, other)
    (run,) = group(using, Circumstances(now_ns=NOW, gpus=owned(using, iter(devices))))
    assert {rank.reading.folder: rank.gpus for rank in run.ranks} == expected
    assert owned(using, iter(devices)) == expected


def test_a_device_with_an_equal_name_precedes_one_with_another_prefix() -> None:
    """The first device has the bare name; each rank has its own device."""
    first, second = builders.gpu(0, uuid="GPU-a"), builders.gpu(1, uuid="MIG-a")
    using = [reading("0", gpus=("MIG-a",)), reading("1", rank=1, gpus=("GPU-a",))]
    found = owned(using, (first, second))
    assert found == {"0": (second,), "1": (first,)}
    assert owned([reading("2", gpus=("a",))], (first, second)) == {"2": (first,)}


QUIET = StepCounts(steps=9, last_step_ns=builders.ago(100))


@pytest.mark.parametrize(
    ("worked", "alive", "state"),
    [(None, True, State.STALLED), (50, True, State.EAGER), (50, False, State.STALLED)],
    ids=["nobody works", "the other one works", "it worked, and is gone"],
)
def test_a_rank_waits_for_a_live_rank_that_works(
    worked: float | None, alive: bool, state: State
) -> None:
    working = {} if worked is None else {"1": builders.ago(worked), "gone": NOW}
    ranks = [
        reading("0", steps=QUIET),
        reading("1", rank=1, steps=QUIET, alive=alive),
        reading("2", rank=2, steps=QUIET),
    ]
    (run,) = group(ranks, Circumstances(now_ns=NOW, working=working))
    assert [rank.judgement.state for rank in run.ranks][::2] == [state, state]
    assert [rank.working_ns for rank in run.ranks] == [0, working.get("1", 0), 0]


def test_a_run_without_live_ranks_does_not_wait() -> None:
    (run,) = group(
        [reading("0", alive=False, steps=QUIET)], Circumstances(now_ns=NOW, working={"0": NOW})
    )
    assert run.state is State.LOST


@pytest.mark.parametrize(
    ("alive", "state"), [(True, State.EAGER), (False, State.STALLED)], ids=["living", "gone"]
)
def test_a_rank_waits_for_a_live_rank_that_evaluates(*, alive: bool, state: State) -> None:
    evaluating = CompileCounts(evaluating_since_ns=builders.ago(90))
    ranks = [
        reading("0", steps=QUIET),
        reading("1", rank=1, steps=QUIET, compile=evaluating, alive=alive),
        reading("2", rank=2, steps=QUIET),
    ]
    (run,) = group(ranks, Circumstances(now_ns=NOW))
    assert [rank.judgement.state for rank in run.ranks][::2] == [state, state]


COMPILES = CompileCounts(begun=1, active_since_ns=builders.ago(30), active_phase=1)


@pytest.mark.parametrize(
    ("limit", "conditions"), [(20, ("long_compile",)), (30, ()), (0, ())], ids=str
)
def test_a_compilation_is_compared_with_the_configured_limit(
    limit: int, conditions: tuple[str, ...]
) -> None:
    (run,) = group(
        [reading("0", compile=COMPILES)], Circumstances(now_ns=NOW, long_compile_ns=limit * 10**9)
    )
    assert run.ranks[0].judgement.conditions == conditions


def test_a_compiling_rank_is_compared_with_the_finished_ranks() -> None:
    """The limit is five times the duration of the other one: ten minutes."""
    did = CompileCounts(begun=1, ended=1, longest_activity_ns=120 * 10**9)
    for since, conditions in ((599, ()), (601, ("long_compile",))):
        mine = replace(COMPILES, active_since_ns=builders.ago(since))
        ranks = [reading("0", compile=mine), reading("1", rank=1, compile=did)]
        (run,) = group(ranks, Circumstances(now_ns=NOW))
        assert run.ranks[0].judgement.conditions == conditions


def test_a_warm_up_is_compared_with_comparable_earlier_runs() -> None:
    first = Warmup(began_ns=builders.ago(200), ended_ns=builders.ago(100), steps=1)
    slow = CompileCounts(begun=1, ended=1, warmups=1, first_warmup=first, last_warmup=first)
    ranks = [reading(str(rank), rank=rank, compile=slow) for rank in (0, 1)]
    (run,) = group(ranks, Circumstances(now_ns=NOW, earlier={"1": (10 * 10**9,)}))
    assert [rank.judgement.conditions for rank in run.ranks] == [(), ("slower_than_before",)]


def test_a_rank_is_idle_since_its_last_process_was_busy() -> None:
    ranks = [reading(str(rank), rank=rank) for rank in range(3)]
    (run,) = group(ranks, Circumstances(now_ns=NOW, busy={"0": builders.ago(30), "1": NOW + 1}))
    assert [rank.idle_seconds for rank in run.ranks] == [30, 0, None]


def test_a_single_view_has_no_work_and_no_devices() -> None:
    alone = view_of(reading("0"))
    assert (alone.working_ns, alone.gpus, alone.process) == (0, (), None)


def test_a_single_view_has_a_limit_of_an_hour() -> None:
    for since, conditions in ((3600, ()), (3601, ("long_compile",))):
        mine = replace(COMPILES, active_since_ns=builders.ago(since))
        assert view_of(reading("0", compile=mine)).judgement.conditions == conditions


def test_a_rank_has_its_busy_and_idle_compile_workers() -> None:
    process = ProcessReading(
        pid=7, cpu_seconds=1.0, resident_bytes=2, workers_busy=3, workers_idle=1
    )
    workers = view_of(reading("0", pid=7), process=process).figures.workers
    assert workers is not None
    assert (workers.busy, workers.idle) == (3, 1)


def test_the_verdict_gets_the_facts_of_the_record() -> None:
    steps = StepCounts(steps=9, last_step_ns=NOW, last_batch_ns=8)
    clean = (1_000_000_000, 1_000_000_000, 20_000_000_000)
    one = reading("0", alive=False, steps=steps, clean=clean, baseline_steps=4)
    one = replace(one, gone_ns=6)
    reported = facts(one, Circumstances(now_ns=NOW), Peers(compiled_ns=5, at_work_ns=7, pause_ns=9))
    assert (reported.attached_ns, reported.warm_steps) == (one.slot.header.attached_ns, 3)
    assert (reported.steps, reported.compile, reported.alive) == (steps, one.slot.compile, False)
    assert (reported.gone_ns, reported.last_batch_ns) == (6, 8)
    assert (reported.peers_compiled_ns, reported.working_ns, reported.pause_ns) == (5, 7, 9)
    assert reported.baseline_steps == 4
    assert reported.longest_step_ns == 20_500_000_000, "the end of its bin"
    assert reported.median_step_ns == pytest.approx(1e9, rel=0.03)
    bare = facts(reading("1"), Circumstances(now_ns=NOW), Peers())
    assert (bare.peers_compiled_ns, bare.working_ns, bare.pause_ns) == (0, 0, 0)
    assert bare.baseline_steps == 0
    assert (bare.median_step_ns, bare.longest_step_ns) == (None, 0)


def test_the_figures_of_a_removed_record_are_evicted() -> None:
    one, other = reading("one"), reading("other", rank=1)
    judging, around = Judging(), OtherReadings(now_ns=NOW)
    judging.of([one, other], around, None)
    before = cached_figures(one), cached_figures(other)
    judging.of([other], around, {other.folder})
    assert cached_figures(other) is before[1]
    assert cached_figures(one) is not before[0]


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
        ([gone(30), gone(20)], True),
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
        "ten seconds apart",
        "one long before the other",
        "a part is gone",
        "a part is gone, since an unknown time",
        "a part has finished",
        "none is gone",
        "nobody saw when one went",
        "one rank cannot tell",
    ],
)
def test_a_run_ended_together_if_all_its_ranks_did(
    ranks: list[RecordReading], together: bool | None
) -> None:
    """A cancelled job ends with all ranks; after a failed rank the others continue for a while."""
    numbered = [
        replace(one, slot=replace(one.slot, identity=replace(one.slot.identity, rank=number)))
        for number, one in enumerate(ranks)
    ]
    (run,) = group(numbered, Circumstances(now_ns=NOW))
    assert run.ended_together is together


SECOND = 10**9
KILL, TERM, ABORT, SEGV = 9, 15, 6, 11


def dead(rank: int, signal: int | None, ago: float = 1.0) -> RecordReading:
    at_ns = NOW - round(ago * SECOND)
    death = None if signal is None else Death(signal=signal, at_ns=at_ns)
    gone = reading(str(rank), rank=rank, alive=False, steps=TELLING)
    return replace(gone, gone_ns=at_ns, death=death)


def living(rank: int) -> RecordReading:
    return reading(str(rank), rank=rank, steps=TELLING)


@pytest.mark.parametrize(
    ("ranks", "states"),
    [
        # the process brought it upon itself
        ([dead(0, ABORT)], ["failed"]),
        ([dead(0, SEGV), dead(1, TERM)], ["failed", "lost"]),
        # a launcher cleans up with SIGTERM, and SIGKILL where that does not help
        ([dead(0, TERM, 0.9), dead(1, KILL, 1.0)], ["lost", "failed"]),
        ([dead(0, TERM, 40), dead(1, KILL, 50), dead(2, KILL, 10)], ["lost", "failed", "lost"]),
        # a scheduler sends the same signals to all
        ([dead(0, TERM), dead(1, TERM)], ["lost", "lost"]),
        ([dead(0, KILL), dead(1, KILL)], ["lost", "lost"]),
        ([dead(0, TERM, 31), dead(1, KILL, 1)], ["lost", "lost"]),
        ([dead(0, KILL)], ["lost"]),
        ([dead(0, KILL, 1.9), living(1)], ["lost", "warming"]),
        # and does not leave one alive
        ([dead(0, KILL, 2.1), living(1)], ["failed", "warming"]),
        ([dead(0, TERM, 2.1), living(1)], ["lost", "warming"]),
        # and one that lived on may end in any way later
        ([dead(0, KILL, 9), dead(1, None, 6.9)], ["failed", "lost"]),
        ([dead(0, KILL, 9), dead(1, KILL, 6.9)], ["failed", "lost"]),
        ([dead(0, KILL, 9), dead(1, None, 7.1)], ["lost", "lost"]),
        # the signals were not seen
        ([dead(0, None), dead(1, None)], ["lost", "lost"]),
    ],
)
def test_a_rank_that_died_by_itself_failed_and_terminated_ranks_did_not(
    ranks: list[RecordReading], states: list[str]
) -> None:
    (run,) = group(ranks, Circumstances(now_ns=NOW))
    assert [view.judgement.state.value for view in run.ranks] == states


def test_a_process_killed_during_its_exit_is_lost_after_any_signal() -> None:
    crashed = dead(0, SEGV)
    at_end = replace(crashed.slot, compile=CompileCounts(ended_ns=NOW - SECOND))
    (run,) = group([replace(crashed, slot=at_end)], Circumstances(now_ns=NOW))
    assert run.state is State.LOST
