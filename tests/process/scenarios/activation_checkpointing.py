"""Activation checkpointing inside the compiled model: traced with it, compiled once."""

import torch
from _common import finish, small, train
from torch.utils.checkpoint import checkpoint

EXPECT = {"long": True, "states": "compiling warming warm"}


class Checkpointed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)
        self.outer = small()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(checkpoint(lambda y: self.inner(y).sin(), x, use_reentrant=False))


model = Checkpointed()
train(torch.compile(model), torch.optim.AdamW(model.parameters()), steps=8)
finish()
