"""What every scenario shares: a tiny model, its data, step marks, and the account at its end.

A scenario calls ``mark(loss)`` after each optimizer step (or whatever its step is) and ``finish()``
at its end. If the suite requests it, the agent is attached here, before anything else, unless the
scenario declares ``SCENARIO_LATE`` and calls ``attach()`` itself. Run by hand
(``PYTHONPATH=tests python tests/process/scenarios/static.py``) it is an ordinary training that
prints its losses.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from support import truth
from support.gate import gate
from support.requested_polls import request_poll

AGENT, LATE, ACCOUNT = "SCENARIO_AGENT", "SCENARIO_LATE", "SCENARIO_ACCOUNT"


def attach() -> None:
    """Attach the agent if the suite requests it."""
    if os.environ.get(AGENT):
        import warmwatch.auto  # noqa: F401


if not os.environ.get(LATE):
    attach()

_warned = warnings.catch_warnings(record=True)
_warnings = _warned.__enter__()
warnings.simplefilter("always")
_marks: list[int] = []
_losses: list[str] = []
_beside: list[dict[str, Any]] = []
_pauses: list[tuple[int, int]] = []
_lookups: dict[str, int] = {}
torch.manual_seed(0)
random.seed(0)
torch.set_num_threads(1)
truth.begin()


def small(width: int = 8) -> torch.nn.Module:
    """Two layers: what compiles fastest and still has a forward and a backward."""
    return torch.nn.Sequential(torch.nn.Linear(width, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))


def limit_recompiles(limit: int) -> None:
    """How often a frame may be compiled again; the setting has had two names."""
    config = torch._dynamo.config
    name = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"
    setattr(config, name, limit)


def batch(size: int = 4, width: int = 8) -> torch.Tensor:
    """Random inputs."""
    return torch.randn(size, width)


def loss_of(model: torch.nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """A loss to go backward from, the model's part of it compiled where the model is."""
    return model(inputs).square().mean()


def train(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    steps: int,
    size: int = 4,
) -> None:
    """Ordinary training steps, each marked."""
    for _ in range(steps):
        loss = loss_of(model, batch(size))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mark(loss)


@contextmanager
def raises(kind: type[Exception]) -> Iterator[None]:
    """The training expects ``kind`` here, and goes on after it."""
    try:
        yield
    except kind:
        return
    raise AssertionError(f"no {kind.__name__} was raised")


def note(value: torch.Tensor) -> None:
    """A number that must be the same with the agent and without."""
    _losses.append(float(value.detach().double().sum()).hex())


def mark(loss: torch.Tensor) -> None:
    """A step is over, and the monitor has seen that."""
    _marks.append(time.monotonic_ns())
    note(loss)
    request_poll()


@contextmanager
def compiles(kind: str, name: str) -> Iterator[dict[str, Any]]:
    """Record a compilation by another compiler than PyTorch's, with its time.

    Set ``seconds`` in the yielded entry where the compiler took less than the whole block.
    """
    start = time.monotonic_ns()
    compiled: dict[str, Any] = {"kind": kind, "name": name}
    yield compiled
    end = time.monotonic_ns()
    _beside.append({"seconds": (end - start) / 1e9, "start": start, "end": end, **compiled})


@contextmanager
def pauses() -> Iterator[None]:
    """The training saves here: the time is no part of a step's length."""
    start = time.monotonic_ns()
    yield
    _pauses.append((start, time.monotonic_ns()))


def count_cache_lookup(*, hit: bool) -> None:
    """Count an event of Triton's own listener."""
    verdict = "hits" if hit else "misses"
    _lookups[verdict] = _lookups.get(verdict, 0) + 1


def finish() -> None:
    """Hand over what happened, and wait at the gate so that a monitor sees the end of it."""
    account = {
        "random": [
            str(torch.random.get_rng_state().sum()),
            torch.rand(2).tolist(),
            random.random(),
        ],
        "losses": _losses,
        "marks": _marks,
        "warnings": [f"{one.category.__name__}: {one.message}" for one in _warnings],
        "torch": torch.__version__,
        "beside": _beside,
        "pauses": _pauses,
        "triton_cache": _lookups,
        **truth.recorded(),
    }
    if path := os.environ.get(ACCOUNT):
        Path(path).write_text(json.dumps(account))
        gate("done")
    else:
        print(*(float.fromhex(value) for value in _losses), file=sys.stdout)
