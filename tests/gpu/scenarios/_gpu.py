"""What the scenarios for a real GPU share, on top of what all scenarios share."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "process" / "scenarios"))

import torch
from _common import attach, finish, mark, note, pauses  # noqa: F401 - for the scenarios

RANK = int(os.environ.get("RANK", "0"))
torch.backends.cuda.matmul.allow_tf32 = False


def model() -> torch.nn.Module:
    """Enough for pointwise, reduction and matrix kernels."""
    layers = (torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.LayerNorm(512))
    return torch.nn.Sequential(*layers, torch.nn.Linear(512, 256)).cuda()


class Block(torch.nn.Module):
    """A user's own module: within DDP and FSDP2, Dynamo leaves PyTorch's containers alone."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = model()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` of ``[batch, 256]``, and so the result."""
        return x + self.inner(x)


class Blocks(torch.nn.Module):
    """Three of them."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` of ``[batch, 256]``, and so the result."""
        for block in self.blocks:
            x = block(x)
        return x


def join() -> None:
    """Meet the other ranks, each on the GPU of its number."""
    torch.cuda.set_device(RANK)
    meeting = f"{os.environ['SCENARIO_MEETING']}-{Path(os.environ['SCENARIO_ACCOUNT']).stem}"
    torch.distributed.init_process_group(
        "nccl",
        init_method=f"file://{meeting}",
        rank=RANK,
        world_size=int(os.environ["WORLD_SIZE"]),
        device_id=torch.device("cuda", RANK),
        timeout=timedelta(minutes=2),  # where another rank cannot come, its own error is then seen
    )


def part() -> None:
    """Leave the group; a scenario's last step is over on every rank."""
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


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
