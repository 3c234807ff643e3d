"""What a step costs: the agent's own hook, beside a bare clock read with one packed store.

The hook is measured as it runs in a training: on a real optimizer, into a mapped slot on disk, with
steps of 20 ms +- 5 %, so that the histogram's bin changes as often as in a real training. First in
a tight loop, with everything in the caches; then in place, between real steps.
"""

from __future__ import annotations

import itertools
import mmap
import os
import random
import struct
import tempfile
import timeit
from collections.abc import Callable, Iterator
from functools import partial
from time import monotonic_ns, perf_counter_ns

from benchmarks import in_place
from benchmarks.figure import Figure

NUMBER, ROUNDS, SCALARS = 100_000, 9, 20_000


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as place:
        os.environ["WARMWATCH_DIR"] = place
        import torch

        import warmwatch
        from warmwatch.lifecycle import agent as _agent
        from warmwatch.lifecycle import api
        from warmwatch.steps import steps

        jitter = _jittered_clock()
        clock = _nanoseconds("c()", c=jitter) - _nanoseconds("c()", c=monotonic_ns)
        _agent.make_steps = partial(steps.make_steps, clock=jitter)  # type: ignore[attr-defined]
        warmwatch.attach()
        parameter = torch.nn.Parameter(torch.ones(1))
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        for _ in range(10):
            optimizer.step()
        assert api.attached is not None
        agent = api.attached.agent
        bare = _nanoseconds("h(o)", h=_bare(), o=optimizer)
        own = _nanoseconds("h(o)", h=agent.steps.on_step, o=optimizer) - clock
        counted = agent.record.image().steps.steps
        assert counted > NUMBER * ROUNDS, "every call was a step, or it was not the hot path"
        scalar = _tensorboard(place)
        warmwatch.detach()
        _agent.make_steps = steps.make_steps  # type: ignore[attr-defined]
        warmwatch.attach()
        placed = tuple(in_place.measure(place))
        warmwatch.detach()
    yield Figure(
        name="step: own work / bare clock read and store",
        value=own / bare,
        limit=3,
        detail=f"{own:.0f} ns over {bare:.0f} ns",
    )
    yield Figure(
        name="step: own work / TensorBoard add_scalar",
        value=own / scalar,
        limit=0.01,
        detail=f"{own:.0f} ns over {scalar:.0f} ns",
    )
    yield from placed


def _nanoseconds(call: str, **names: object) -> float:
    """Nanoseconds of one call: the best of some rounds, as ``timeit`` recommends."""
    return min(timeit.repeat(call, globals=names, number=NUMBER, repeat=ROUNDS)) / NUMBER * 1e9


def _bare() -> Callable[[object], None]:
    """A hook that reads the clock and stores five words: the least that any such hook does."""
    buffer = mmap.mmap(-1, 4096)
    store = struct.Struct("<5Q").pack_into

    def bare(optimizer: object) -> None:  # noqa: ARG001 - a hook's
        store(buffer, 64, monotonic_ns(), 1, 2, 3, 4)

    return bare


def _jittered_clock() -> Callable[[], int]:
    """A clock whose steps are 20 ms +- 5 %; it still reads the real clock."""
    drawn = random.Random(0)
    lengths = itertools.cycle([int(2e7 * drawn.uniform(0.95, 1.05)) for _ in range(4096)])
    now = [monotonic_ns()]

    def clock() -> int:
        monotonic_ns()
        now[0] += next(lengths)
        return now[0]

    return clock


def _tensorboard(place: str) -> float:
    """Nanoseconds of one ``add_scalar``, over as many as make its queue fill and be written."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(place)
    began = perf_counter_ns()
    for step in range(SCALARS):
        writer.add_scalar("loss", 0.5, step)
    spent = perf_counter_ns() - began
    writer.close()
    return spent / SCALARS
