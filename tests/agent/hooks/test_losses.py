"""Losses that a device delivers later than the pass that computed them."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

import pytest

from warmwatch.hooks.training.losses import _Losses, _Pinned
from warmwatch.shared.record.loss_file import (
    MOST_ROWS,
    ROW,
    SIZE,
    STEP,
    UNUSED_ROW,
    rows_of,
)

# PyTorch is imported in the tests: at the top, every worker would import it
(NOT_YET,) = struct.unpack("<d", UNUSED_ROW[STEP.size :])


def test_a_loss_is_stored_once_it_has_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the passes; a machine without CUDA pins no memory."""
    import torch

    monkeypatch.setattr(torch.Tensor, "pin_memory", torch.Tensor.clone)
    mapping = mmap.mmap(-1, SIZE)
    mapping[:] = UNUSED_ROW * MOST_ROWS
    for row in range(3):
        STEP.pack_into(mapping, row * ROW.size, row + 1)
    pinned = _Pinned(torch, mapping)
    pinned.copy(0, torch.tensor([2.5]))
    pinned.copy(1, torch.tensor(NOT_YET, dtype=torch.float64))
    pinned.copy(2, torch.tensor(float("inf"), dtype=torch.bfloat16))
    assert rows_of(mapping[:]) == ((1, 2.5),)
    pinned._arriving[1] = 7.0
    pinned.copy(3, torch.tensor(1.0))
    assert rows_of(mapping[:]) == ((1, 2.5), (2, 7.0), (3, float("inf")))


def test_a_dispatch_mode_of_the_program_sees_no_operation_of_the_agent(tmp_path: Path) -> None:
    import torch
    import torch._dynamo  # as when the hook is installed
    from torch.utils._python_dispatch import TorchDispatchMode

    dispatched: list[str] = []

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            dispatched.append(str(func))
            return func(*args, **(kwargs or {}))

    losses = _Losses(torch, tmp_path, lambda: 0, lambda: 0)
    loss = torch.tensor(2.5, requires_grad=True)
    scaled = loss * 2
    with Recorder():
        losses.scaled(loss, scaled)
        losses.take((scaled,), {})
    assert not dispatched
    (file,) = tmp_path.iterdir()
    assert rows_of(file.read_bytes()) == ((1, 2.5),)
