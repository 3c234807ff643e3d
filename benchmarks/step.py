"""What a step costs: the agent's own hook, beside a bare clock read with one packed store.

The hook is measured as it runs in a training: on a real optimizer, into a mapped slot on disk, with
steps of 20 ms give or take 5 %, so that the histogram's bin changes as often as it does in reality.
The wrapper with which ``torch.compiler.disable`` and the optimizer surround every such hook is
PyTorch's, and is told apart.
"""

from __future__ import annotations

import itertools
import mmap
import os
import random
import struct
import tempfile
from collections.abc import Iterator
from time import monotonic_ns

from benchmarks.figure import Figure, nanoseconds

NUMBER = 100_000


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as place:
        os.environ["WARMWATCH_DIR"] = place
        import torch
        from torch.optim import optimizer as seam

        import warmwatch
        from warmwatch import _lifecycle, _steps

        bare = nanoseconds(_bare(), NUMBER)
        jitter = _jittered_clock()
        clock = nanoseconds(jitter, NUMBER) - nanoseconds(monotonic_ns, NUMBER)
        make_mark = _steps.make_mark
        _steps_clock(make_mark, jitter)
        warmwatch.attach()
        parameter = torch.nn.Parameter(torch.ones(1))
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        for _ in range(10):
            optimizer.step()
        disabled = list(seam._global_optimizer_post_hooks.values())[-1]
        hook = disabled._torchdynamo_orig_callable
        own = nanoseconds(lambda: hook(optimizer, (), {}), NUMBER) - clock
        wrapped = nanoseconds(lambda: disabled(optimizer, (), {}), NUMBER) - clock
        agent = _lifecycle.current
        assert agent is not None
        assert agent.rounds.fast, "the hot path is what is to be measured"
        assert agent._image().steps.steps > NUMBER
        scalar = _tensorboard(place)
        warmwatch.detach()
    detail = f"{own:.0f} ns over {bare:.0f} ns"
    yield Figure(
        name="step: own work / bare clock and store", value=own / bare, limit=3, detail=detail
    )
    detail = f"{own:.0f} ns over {scalar:.0f} ns"
    yield Figure(
        name="step: own work / TensorBoard add_scalar",
        value=own / scalar,
        limit=0.01,
        detail=detail,
    )
    detail = f"{wrapped:.0f} ns, torch.compiler.disable included"
    yield Figure(name="step: with PyTorch's wrapper / bare", value=wrapped / bare, detail=detail)


def _bare():  # type: ignore[no-untyped-def]
    buffer = mmap.mmap(-1, 4096)
    store = struct.Struct("<5Q").pack_into

    def bare(_optimizer: object, _args: object, _kwargs: object) -> None:
        store(buffer, 64, monotonic_ns(), 1, 2, 3, 4)

    return lambda: bare(None, (), {})


def _jittered_clock():  # type: ignore[no-untyped-def]
    """A clock whose steps are 20 ms, give or take 5 %; it still reads the real one."""
    drawn = random.Random(0)
    lengths = itertools.cycle([int(2e7 * drawn.uniform(0.95, 1.05)) for _ in range(4096)])
    now = [monotonic_ns()]

    def clock() -> int:
        monotonic_ns()
        now[0] += next(lengths)
        return now[0]

    return clock


def _steps_clock(make_mark, clock) -> None:  # type: ignore[no-untyped-def]
    from warmwatch import _agent

    def with_clock(*args, **kwargs):  # type: ignore[no-untyped-def]
        return make_mark(*args, **kwargs, clock=clock)

    _agent.make_mark = with_clock


def _tensorboard(place: str) -> float:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(place)
    numbers = itertools.count()
    cost = nanoseconds(lambda: writer.add_scalar("loss", 0.5, next(numbers)), 2000, 3)
    writer.close()
    return cost
