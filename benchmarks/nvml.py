"""A sampling round of the GPU source over the bare NVML calls that it makes, in one run.

With the real library where there is one; else with one GPU of a stand-in, whose calls take about
as long as an H100's do.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import pynvml

from benchmarks import standin
from benchmarks.figure import Figure
from warmwatch_monitor.sources.nvml.source import NvmlSource

ROUNDS, PAUSE = 60, 0.12  # longer than GPM needs between two samples


def measure() -> Iterator[Figure]:
    """The library that there is, or the stand-in's."""
    if not standin.is_needed():
        yield from _figures("NVML")
        return
    with tempfile.TemporaryDirectory() as folder:
        standin.gpus(1, folder).load()
        yield from _figures("stand-in")


def _figures(library: str) -> Iterator[Figure]:
    """Rounds of both in turn; the calls of a round are recorded, then repeated alone."""
    source = NvmlSource()
    source.read()
    time.sleep(1)
    calls = _calls_of(source)
    ours, bare = [], []
    for _ in range(ROUNDS):
        time.sleep(PAUSE)
        ours.append(_seconds(source.read))
        time.sleep(PAUSE)
        bare.append(_seconds(lambda: _make(calls)))
    round_, calls_ = statistics.median(ours), statistics.median(bare)
    yield Figure(
        name="nvml: a round / its bare calls, medians",
        value=round_ / calls_,
        limit=1.3,
        detail=f"{round_ * 1e6:.0f} us over {calls_ * 1e6:.0f} us, {len(calls)} calls, {library}",
    )


def _calls_of(source: NvmlSource) -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
    """The NVML calls of an ordinary round, one in which the energy counter is not due."""
    made: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
    originals = {name: getattr(pynvml, name) for name in dir(pynvml) if name.startswith("nvml")}

    def spied(call: Callable[..., Any]) -> Callable[..., Any]:
        def spy(*args: Any) -> Any:
            made.append((call, args))
            return call(*args)

        return spy

    source.read()
    time.sleep(PAUSE)
    for name, call in originals.items():
        if callable(call):
            setattr(pynvml, name, spied(call))
    try:
        source.read()
    finally:
        for name, call in originals.items():
            setattr(pynvml, name, call)
    names = {call.__name__ for call, _ in made}
    nested = {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlEventSetWait_v2"} & names
    return [(call, args) for call, args in made if call.__name__ not in nested]


def _make(calls: list[tuple[Callable[..., Any], tuple[Any, ...]]]) -> None:
    for call, args in calls:
        try:
            call(*args)
        except pynvml.NVMLError:
            continue


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    for figure in measure():
        print(figure)
