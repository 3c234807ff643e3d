"""What limits the speed changes: a verdict ends with the readings that contradict it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from support import builders as b
from support import sources
from support.builders import NOW, SECOND, view_of
from support.values import replace
from warmwatch_monitor.figures.machine import Refusal
from warmwatch_monitor.model.machine import ProcessReading
from warmwatch_monitor.model.records import RecordReading
from warmwatch_monitor.pipeline.limits import Windows, with_limits
from warmwatch_monitor.pipeline.poller import Assembly
from warmwatch_monitor.sources.listed import NVML, RECORDS, Readings
from warmwatch_monitor.sources.records.source import RecordsReading

COMPUTES = {"utilization_ratio": 0.99, "tensor_active_ratio": 0.7}
RIVAL = {"process_ratios": ((1, 0.5), (9, 0.5))}


def verdicts(
    seconds: int,
    reading: Callable[[int], dict[str, object]],
    cpu: float = 1.0,
    program_ended: int | None = None,
) -> list[str | None]:
    """The verdict of each poll, once a second, of a rank with steps of half a second.

    ``program_ended``: the second from which its process only exits.
    """
    windows: Windows = {}
    found = []
    for second in range(seconds):
        now = NOW + second * SECOND
        known = {**COMPUTES, "processes": (1, 9), "process_ratios": ((1, 0.9),), **reading(second)}
        gpu = replace(b.gpu(0, **known), at_ns=now)
        slot = replace(
            b.WARM,
            identity=replace(b.WARM.identity, gpus=(gpu.uuid,)),
            steps=replace(
                b.WARM.steps, steps=b.WARM.steps.steps + 2 * second, last_step_ns=now, batches=9
            ),
            recent=b.ring(*(SECOND // 2,) * 8),
        )
        if program_ended is not None and second >= program_ended:
            ended_ns = NOW + program_ended * SECOND
            slot = replace(slot, compile=replace(slot.compile, ended_ns=ended_ns))
        process = ProcessReading(
            pid=1, cpu_seconds=cpu * second, resident_bytes=1, cpu_ratio=cpu, cpus=2
        )
        record = RecordReading(folder="/d/gpt2", slot=slot, alive=True, pid=1)
        view = view_of(record, now, process=process, gpus=(gpu,))
        windows, (run,) = with_limits(b.runs(view), windows, None, now)
        limit = run.ranks[0].limited_by
        found.append(limit.verdict if limit else None)
    return found


@pytest.mark.parametrize("begin", [20, 60, 300])
def test_a_rival_on_the_gpu_ends_compute_and_its_end_ends_shared(begin: int) -> None:
    end = begin + 40
    seen = verdicts(end + 40, lambda at: RIVAL if begin <= at < end else {})
    assert set(seen[8:begin]) == {"compute"}
    assert "compute" not in seen[begin + 1 : end + 2]
    assert set(seen[begin + 8 : end]) == {"shared"}
    assert "shared" not in seen[end + 2 :]
    assert set(seen[end + 10 :]) == {"compute"}


@pytest.mark.parametrize(
    "unread",
    [None, RecordsReading(refusals=(Refusal(path="/d/gpt2", reason="it is torn"),))],
    ids=["no directory", "the record"],
)
def test_what_limits_a_rank_survives_a_poll_that_cannot_read_it(
    unread: RecordsReading | None,
) -> None:
    """Of an ended rank it is never measured again."""
    assembly = Assembly(sources.settings("/d"))
    gpu = replace(b.gpu(0, **COMPUTES, processes=(1,)), at_ns=NOW)
    slot = replace(b.WARM, identity=replace(b.WARM.identity, gpus=(gpu.uuid,)))

    def verdict(second: int, reading: RecordsReading | None) -> str | None:
        at_ns = NOW + second * SECOND
        values = {RECORDS.name: reading, NVML.name: (replace(gpu, at_ns=at_ns),)}
        runs = assembly.make(Readings(values=values), (), at_ns, b.EPOCH).snapshot.runs
        limits = [view.limited_by for run in runs for view in run.ranks]
        return limits[0].verdict if limits and limits[0] else None

    for second in range(20):
        at_ns, count = NOW + second * SECOND, slot.steps.steps + second
        steps = replace(slot.steps, steps=count, last_step_ns=at_ns)
        record = RecordReading(folder="/d/gpt2", slot=replace(slot, steps=steps), alive=True, pid=1)
        found = verdict(second, RecordsReading(records=(record,)))
    assert found == "compute"
    ended = RecordsReading(records=(replace(record, alive=False, pid=None),))
    assert verdict(20, ended) == "compute"
    assert verdict(21, unread) is None
    assert verdict(22, ended) == "compute"


@pytest.mark.parametrize("seed", range(10))
def test_noise_and_short_gaps_do_not_end_a_verdict(seed: int) -> None:
    chance = random.Random(seed)

    def reading(at: int) -> dict[str, object]:
        if at % 10 == 9:  # a log line, a metric that synchronizes
            return {"utilization_ratio": 0.6, "tensor_active_ratio": 0.4}
        return {"tensor_active_ratio": chance.uniform(0.55, 0.85)}

    assert set(verdicts(120, reading)[10:]) == {"compute"}
