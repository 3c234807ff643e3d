"""A rank that works without optimizer steps is not stalled; one that waits is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import builders as b
from support import sources
from support.builders import NOW, SECOND
from support.values import replace
from warmwatch.shared.record import Slot, StepCounts
from warmwatch.shared.states import State
from warmwatch.shared.verdict import judge
from warmwatch_monitor.model.machine import GpuReading, ProcessReading
from warmwatch_monitor.model.records import RecordReading
from warmwatch_monitor.pipeline.judging import Work, follow_work
from warmwatch_monitor.pipeline.poller import Assembly
from warmwatch_monitor.pipeline.runs import Circumstances, Peers, facts
from warmwatch_monitor.sources.host import HostAndProcesses
from warmwatch_monitor.sources.listed import HOST, NVML, RECORDS, Readings
from warmwatch_monitor.sources.records.source import RecordsReading

EVALUATES = {"utilization_ratio": 0.98, "power_watts": 686.0}
SPINS = {"utilization_ratio": 1.0, "power_watts": 118.0}
IDLES = {"utilization_ratio": 0.02, "power_watts": 118.0}
UNREAD = {"utilization_ratio": None, "power_watts": None}
OLD = {"utilization_ratio": 0.98, "power_watts": None}


class Watched:
    """Ranks that stopped making steps at NOW, read once a second from then on."""

    def __init__(
        self,
        *ranks: tuple[dict[str, float | None] | None, float | None],
        slot: Slot | None = None,
    ) -> None:
        steps = replace(b.WARM.steps, last_step_ns=NOW)
        self.slot = slot or replace(b.WARM, steps=steps)
        self.assembly = Assembly(sources.settings("/d"))
        self.ranks = ranks
        self.passed = 0
        self.cpu = [0.0] * len(ranks)

    def states(self, seconds: int, *, records: bool = True) -> list[State]:
        """The verdict of each rank after that many more seconds."""
        for _ in range(seconds):
            self.passed += 1
            readings = self._readings(records=records)
            at = NOW + self.passed * SECOND
            runs = self.assembly.make(readings, (), at, 1.0).snapshot.runs
        return [view.judgement.state for run in runs for view in run.ranks]

    def _readings(self, *, records: bool) -> Readings:
        found, gpus, processes = [], [], {}
        for number, (gpu, ratio) in enumerate(self.ranks):
            slot = b.as_rank(self.slot, number, len(self.ranks))
            if gpu is not None:
                device = replace(b.gpu(number, **gpu), at_ns=NOW + self.passed * SECOND)
                gpus.append(device)
                slot = replace(slot, identity=replace(slot.identity, gpus=(device.uuid,)))
            if ratio is not None:
                self.cpu[number] += ratio
                processes[number + 1] = ProcessReading(
                    pid=number + 1,
                    cpu_seconds=self.cpu[number],
                    resident_bytes=1,
                    cpu_ratio=ratio,
                )
            found.append(
                RecordReading(folder=f"/d/{number}", slot=slot, alive=True, pid=number + 1)
            )
        values: dict[str, object] = {
            NVML.name: tuple(gpus),
            HOST.name: HostAndProcesses(machine=None, processes=processes),
        }
        if records:
            values[RECORDS.name] = RecordsReading(records=tuple(found))
        return Readings(values=values)


@pytest.mark.parametrize(
    ("gpu", "cpu", "state"),
    [
        (EVALUATES, 0.1, State.WARM),
        (EVALUATES, None, State.WARM),
        (OLD, 0.1, State.WARM),
        (SPINS, 1.0, State.STALLED),
        (SPINS, 0.0, State.STALLED),
        (IDLES, 1.0, State.WARM),
        (IDLES, 0.2, State.STALLED),
        (IDLES, None, State.STALLED),
        (None, 1.0, State.WARM),
        (None, 0.2, State.STALLED),
        (UNREAD, 1.0, State.STALLED),
    ],
    ids=[
        "its GPU computes: an evaluation",
        "so it does without data about the host",
        "a GPU that does not tell its power",
        "a collective that spins on both",
        "a collective that spins",
        "the process works, such as a tokenizer",
        "both wait",
        "the GPU waits and nobody tells of the process",
        "the process works, and there is no GPU",
        "the process waits, and there is no GPU",
        "nobody reads its GPU: a busy process may only wait for it",
    ],
)
def test_a_rank_without_steps_is_stalled_if_nothing_works(
    gpu: dict[str, float | None] | None, cpu: float | None, state: State
) -> None:
    assert Watched((gpu, cpu)).states(120) == [state]


@pytest.mark.parametrize("gpu", [IDLES, SPINS])
def test_observing_work_does_not_delay_a_real_stall(
    gpu: dict[str, float | None],
) -> None:
    watched = Watched((gpu, 0.1))
    assert watched.states(60) == [State.WARM]
    assert watched.states(1) == [State.STALLED]


@pytest.mark.parametrize(
    ("ranks", "state"),
    [
        ([(SPINS, 1.0), (IDLES, 0.0)], State.STALLED),
        ([(None, 0.0), (None, 0.0)], State.STALLED),
        ([(None, 0.0)], State.WARMING),
        ([(IDLES, 0.0), (None, 1.0)], State.WARMING),
        ([(IDLES, 0.0), (None, None)], State.WARMING),
        ([(IDLES, 0.0), (UNREAD, 0.0)], State.WARMING),
    ],
    ids=["a collective", "gloo", "alone", "one works", "one is not seen", "a GPU is not read"],
)
def test_ranks_stall_before_their_first_step_if_each_is_seen_to_do_nothing(
    ranks: list[tuple[dict[str, float | None] | None, float | None]], state: State
) -> None:
    """For half of NCCL's timeout, since none is reported."""
    counts = replace(b.WARMING.compile, last_end_ns=NOW, optimizers=1)
    slot = replace(b.WARMING, steps=StepCounts(), compile=counts)
    watched = Watched(*ranks, slot=slot)
    assert set(watched.states(299)) == {State.WARMING}
    assert set(watched.states(3)) == {state}


@pytest.mark.parametrize(("loads", "works"), [(True, [0, 0, 0, 10]), (False, [0, 0, 0, 0])])
def test_a_process_whose_memory_grows_works_before_its_first_step(
    loads: bool, works: list[int]
) -> None:
    """However slowly it does, and not by what it frees."""
    work, moments = Work(), []
    for now, megabytes in ((7, 100), (8, 110), (9, 70), (10, 90)):
        process = ProcessReading(
            pid=1, cpu_seconds=7.0, resident_bytes=megabytes << 20, cpu_ratio=0.0
        )
        work = follow_work(work, process, (), now, uses_gpus=False, loads=loads)
        moments.append(work.working_ns)
    assert moments == works


def test_a_rank_that_receives_batches_is_not_stalled() -> None:
    slot = replace(b.WARM, steps=replace(b.WARM.steps, last_step_ns=b.ago(120)))
    quiet = facts(
        RecordReading(folder="x", slot=slot, alive=True), Circumstances(now_ns=NOW), Peers()
    )
    assert judge(quiet, NOW).state is State.STALLED
    assert judge(replace(quiet, last_batch_ns=b.ago(1)), NOW).state is State.WARM
    assert judge(replace(quiet, working_ns=b.ago(1)), NOW).state is State.WARM


GPUS = st.lists(
    st.builds(
        lambda use, watts, limit, at: GpuReading(
            uuid="x",
            index=0,
            at_ns=at,
            utilization_ratio=use,
            power_watts=watts,
            power_limit_watts=limit,
        ),
        st.none() | st.floats(0, 1),
        st.none() | st.floats(50, 700),
        st.none() | st.floats(0, 700),
        st.integers(0, 200),
    ),
    max_size=3,
)
PROCESS = st.none() | st.builds(
    ProcessReading,
    pid=st.just(1),
    cpu_seconds=st.floats(0, 9),
    resident_bytes=st.just(1),
    cpu_ratio=st.none() | st.floats(0, 4),
)


@settings(deadline=None)
@given(st.lists(st.tuples(PROCESS, GPUS, st.booleans()), max_size=20))
def test_observed_work_never_decreases_and_never_lies_in_the_future(
    readings: list[tuple[ProcessReading | None, list[GpuReading], bool]],
) -> None:
    work = Work()
    for now, (process, gpus, uses) in enumerate(readings, start=100):
        after = follow_work(work, process, gpus, now, uses_gpus=uses)
        assert work.working_ns <= after.working_ns <= now
        if process is None and not any((gpu.utilization_ratio or 0) >= 0.5 for gpu in gpus):
            assert after.working_ns == work.working_ns
        work = after
