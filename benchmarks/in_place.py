"""The cost of a hook between real optimizer steps, when none of it is in the caches.

The loop is like a training's: 30 us of other work, then a real ``optimizer.step()`` with one hook.
The hooks alternate, in short runs of steps. Each figure is the median of the steps with the hook
minus that of the steps without any.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from time import perf_counter_ns
from typing import Any

from benchmarks.figure import Figure

WORK_NS, RUNS, STEPS, SETTLING = 30_000, 400, 20, 2
Hook = Callable[[Any, Any, Any], object]


def measure(place: str) -> Iterator[Figure]:
    """Figures of the attached agent, an empty hook and other libraries."""
    import torch
    from torch.optim import optimizer as module

    hooks = module._global_optimizer_post_hooks

    class Without(torch.optim.SGD):  # type: ignore[misc]
        # PyTorch's empty method in place of the agent's
        _optimizer_step_code = module.Optimizer._optimizer_step_code._torchdynamo_inline

    parameters = [torch.nn.Parameter(torch.ones(64)) for _ in range(4)]
    for parameter in parameters:
        parameter.grad = torch.ones(64)
    optimizer, without = torch.optim.SGD(parameters, lr=1e-6), Without(parameters, lr=1e-6)
    candidates: dict[str, Hook | None] = {
        "none": None,
        "empty": lambda optimizer, args, kwargs: None,  # noqa: ARG005 - a hook's signature
        "ours": None,
        "prometheus": _prometheus(),
        "tensorboard": _tensorboard(place),
    }
    for _ in range(2 * STEPS):
        optimizer.step()

    def place_hook(name: str) -> Any:
        """Place the hook; returns the optimizer to step."""
        hooks.clear()
        if (hook := candidates[name]) is not None:
            hooks[0] = hook
        return optimizer if name == "ours" else without

    spent = _spent(place_hook, tuple(candidates))
    hooks.clear()
    yield from _figures(spent)


def _spent(place: Callable[[str], Any], candidates: Sequence[str]) -> dict[str, float]:
    """Nanoseconds that each hook adds to a step: medians."""
    times: dict[str, list[int]] = {name: [] for name in candidates}
    order = random.Random(0)
    for _ in range(RUNS):
        for name in order.sample(candidates, len(candidates)):
            optimizer = place(name)
            for step in range(STEPS):
                _work()
                began = perf_counter_ns()
                optimizer.step()
                took = perf_counter_ns() - began
                if step >= SETTLING:
                    times[name].append(took)
    bare = median(times.pop("none"))
    return {name: median(values) - bare for name, values in times.items()}


def _figures(spent: Mapping[str, float]) -> Iterator[Figure]:
    ours = spent["ours"]
    detail = ", ".join(f"{name} {ns / 1000:.2f} us" for name, ns in spent.items())
    # no ratio: an empty hook costs from nothing that can be measured to 0.9 us, run by run
    yield Figure(
        name="step in place: ours less an empty hook, us",
        value=(ours - spent["empty"]) / 1000,
        detail=detail,
    )
    yield Figure(
        name="step in place: ours / one prometheus_client histogram",
        value=ours / spent["prometheus"],
        limit=1,
    )
    yield Figure(
        name="step in place: ours / TensorBoard add_scalar",
        value=ours / spent["tensorboard"],
        limit=0.2,
    )


def _work() -> int:
    """Other work of a training's Python: 30 us of it."""
    until, rounds, touched = perf_counter_ns() + WORK_NS, 0, {}
    while perf_counter_ns() < until:
        rounds += 1
        touched[rounds % 97] = rounds
    return rounds


def _prometheus() -> Hook:
    from prometheus_client import CollectorRegistry, Histogram

    histogram = Histogram("step_seconds", "Length of a step.", registry=CollectorRegistry())

    def observe(optimizer: object, args: object, kwargs: object) -> None:  # noqa: ARG001 - a hook's
        histogram.observe(0.02)

    return observe


def _tensorboard(place: str) -> Hook:
    from torch.utils.tensorboard import SummaryWriter

    writer, steps = SummaryWriter(place), iter(range(10**9))

    def add(optimizer: object, args: object, kwargs: object) -> None:  # noqa: ARG001 - a hook's
        writer.add_scalar("loss", 0.5, next(steps))

    return add
