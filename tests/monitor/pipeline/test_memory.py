"""Growing memory, from series that are recorded or calculated; and memory of compile workers."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from support import builders as b
from support.values import replace
from warmwatch_monitor.figures.machine import Host
from warmwatch_monitor.figures.rank import MemoryGrowth, WorkersMemory
from warmwatch_monitor.model.journal import Compilation
from warmwatch_monitor.model.machine import GpuReading, ProcessReading
from warmwatch_monitor.pipeline.memory import (
    MemoryHistory,
    follow,
    growth,
    with_left,
    workers_memory,
)

MB, GB = 2**20, 2**30
SECOND = 10**9
HOST = Host(memory_total_bytes=64 * GB, memory_available_bytes=10 * GB, cpus=8)
LEFT = HOST.memory_available_bytes

Bytes = Callable[[float], float]


def poll(known: MemoryHistory | None, second: float, **changes: Any) -> MemoryHistory:
    """One poll of a warm rank that makes 10 steps a second."""
    given = {"host": None, "gpus": (), "slot": b.WARM, **changes}
    slot = given["slot"]
    slot = replace(slot, steps=slot.steps._replace(steps=1000 + round(10 * second)))
    process = ProcessReading(pid=7, cpu_seconds=1.0, resident_bytes=GB, private_bytes=given["host"])
    return follow(known, slot, round((1000 + second) * SECOND), process, given["gpus"])


def followed(host: Bytes, seconds: int, **changes: Any) -> MemoryHistory:
    known: MemoryHistory | None = None
    for second in range(seconds):
        known = poll(known, second, host=round(host(second)), **changes)
    assert known is not None
    return known


def changes(host: Bytes, seconds: int) -> list[int]:
    """The seconds at which growth begins or ends, if each poll has the one before."""
    known: MemoryHistory | None = None
    held: MemoryGrowth | None = None
    at = []
    for second in range(seconds):
        known = poll(known, second, host=round(host(second)))
        now = growth(known, LEFT, held=held)
        if (now is None) is not (held is None):
            at.append(second)
        held = now
    return at


def found(host: Bytes, seconds: int) -> MemoryGrowth | None:
    return growth(followed(host, seconds), LEFT)


def noise(second: float, size: float = 3 * MB) -> float:
    """Of the allocator: the same at each run."""
    return random.Random(second).uniform(0, size)


def test_a_leak_has_its_slope_its_begin_and_the_time_left() -> None:
    known = found(lambda t: 2 * GB + 4 * MB * max(0, t - 100) + noise(t), 300)
    assert known is not None
    assert known.of == "host"
    assert known.bytes_per_second == pytest.approx(4 * MB, rel=0.05)
    assert known.bytes_per_step == pytest.approx(0.4 * MB, rel=0.05)
    assert known.since_step == pytest.approx(1000 + 10 * 100, abs=150)
    assert known.grown_bytes == pytest.approx(4 * MB * 200, rel=0.2)  # to 16 s
    assert known.left_seconds == pytest.approx(10 * GB / (4 * MB), rel=0.05)
    later = with_left(known, GB, ())
    assert later.left_seconds == pytest.approx(GB / (4 * MB), rel=0.05)
    assert with_left(known, None, ()).left_seconds is None


@pytest.mark.parametrize("rate", [1.5 * MB, 40 * MB])
def test_a_leak_of_any_size_is_found_within_minutes(rate: float) -> None:
    def leak(t: float) -> float:
        return GB + rate * t + noise(t)

    first = next((t for t in range(60, 300, 4) if found(leak, t)), None)
    assert first is not None
    assert first <= 180


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("constant", lambda t: 2 * GB + noise(t, 50 * MB)),
        ("logarithm", lambda t: 2 * GB + 400 * MB * math.log(1 + t)),
        ("levels out in a minute", lambda t: 2 * GB - 900 * MB * math.exp(-t / 20)),
        ("levels out in minutes", lambda t: 2 * GB - 900 * MB * math.exp(-t / 60)),
        ("two recompiles", lambda t: 2 * GB + 500 * MB * ((t > 200) + (t > 400))),
        ("peaks that grow once", lambda t: 2 * GB + (GB if t % 40 < 6 else 0)),
        ("falls", lambda t: 4 * GB - MB * t),
        ("sawtooth", lambda t: 2 * GB + 30 * MB * (t % 55)),
        ("small growth", lambda t: 8 * GB + 0.05 * MB * t),
    ],
)
def test_a_normal_training_raises_no_alarm_at_any_moment(name: str, host: Bytes) -> None:
    known: MemoryHistory | None = None
    for second in range(1500):
        known = poll(known, second, host=round(host(second)))
        assert growth(known, LEFT) is None, f"{name}: alarm after {second} s"


@pytest.mark.parametrize(("piece", "rate"), [(1, 3), (20, 2.5), (64, 0.6), (64, 1)])
def test_a_leak_in_allocator_blocks_is_reported_without_a_gap(piece: int, rate: float) -> None:
    begun = changes(lambda t: 2 * GB + rate * t * MB // (piece * MB) * piece * MB, 3600)
    assert len(begun) == 1


def gpu(used: int, *processes: int) -> GpuReading:
    return GpuReading(
        uuid="GPU-1",
        index=0,
        at_ns=1,
        memory_used_bytes=used,
        memory_total_bytes=80 * GB,
        processes=processes or (7,),
    )


@pytest.mark.parametrize(("others", "of"), [((), "gpu"), ((7, 8), None), (None, None)])
def test_gpu_memory_counts_if_no_other_process_is_on_it(
    others: tuple[int, ...] | None, of: str | None
) -> None:
    known: MemoryHistory | None = None
    gpus: tuple[GpuReading, ...] = ()
    for second in range(300):
        gpus = (gpu(20 * GB + 20 * MB * second, *(others or ())),)
        if others is None:
            gpus = (replace(gpus[0], memory_used_bytes=None),)
        known = poll(known, second, host=GB, gpus=gpus)
    seen = growth(known, LEFT, gpus)
    assert (seen.of if seen else None) == of
    if seen is not None:
        assert seen.left_seconds == pytest.approx((60 * GB - 5980 * MB) / (20 * MB), rel=0.05)


def test_functions_that_compiled_when_the_growth_began_are_named() -> None:
    history = followed(lambda t: 2 * GB + 4 * MB * max(0, t - 100), 300)
    made = [
        Compilation(id=None, kind="forward", at_ns=(1000 + at) * SECOND, name=name, after_warm=True)
        for name, at in (("early", 40), ("forward", 100), ("late", 200))
    ]
    known = growth(history, LEFT, (), made)
    assert known is not None
    assert known.recompiled == ("forward",)


@pytest.mark.parametrize(
    ("used", "workers", "holds"),
    [(0.9, 0.1, True), (0.97, 0.6, True), (0.89, 0.6, False), (0.97, 0.09, False)],
)
def test_workers_with_much_of_a_nearly_full_memory_are_reported(
    used: float, workers: float, holds: bool
) -> None:
    known = WorkersMemory(
        workers=8,
        workers_bytes=round(workers * 1000),
        used_bytes=round(used * 1000),
        limit_bytes=1000,
        cgroup=True,
    )
    process = ProcessReading(pid=7, cpu_seconds=1.0, resident_bytes=1, workers_memory=known)
    assert workers_memory(process) == (known if holds else None)
    assert workers_memory(None) is None
    assert workers_memory(replace(process, workers_memory=None)) is None
