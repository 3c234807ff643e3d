"""Losses that a device delivers later than the pass that computed them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from warmwatch.hooks.training.losses import _Losses
from warmwatch.shared.record.loss_file import (
    rows_of,
)


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
