"""What the scenarios for a real GPU share, on top of what all scenarios share."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "process" / "scenarios"))

import torch
from _common import finish, mark, note  # noqa: F401 - for the scenarios

torch.backends.cuda.matmul.allow_tf32 = False


def model() -> torch.nn.Module:
    """Enough for pointwise, reduction and matrix kernels."""
    layers = (torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.LayerNorm(512))
    return torch.nn.Sequential(*layers, torch.nn.Linear(512, 256)).cuda()


def batch(size: int = 64) -> torch.Tensor:
    """Random inputs, on the GPU."""
    return torch.randn(size, 256).cuda()


def train(
    compiled: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int, size: int = 64
) -> None:
    """Ordinary training steps, each marked."""
    for _ in range(steps):
        loss = compiled(batch(size)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mark(loss)
