"""Activation checkpointing in a compiled model, accumulation, and two optimizers (a GAN)."""
# steps: 4

import optimizers
import torch
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
maker, critic = optimizers.model(), optimizers.model()
maker = torch.nn.Sequential(maker, torch.nn.Linear(1, 4))


@torch.compile(backend="aot_eager")
def made(x):
    return checkpoint(maker, x, use_reentrant=False)


judged = torch.compile(critic, backend="aot_eager")
first = torch.optim.Adam(critic.parameters(), lr=0.01)
second = torch.optim.Adam(maker.parameters(), lr=0.01)
for _ in range(4):
    for _ in range(2):
        loss = (judged(torch.randn(4, 4)) - judged(made(torch.randn(4, 4)).detach())).mean() / 2
        loss.backward()
    first.step()
    first.zero_grad()
    loss = judged(made(torch.randn(4, 4))).mean()
    loss.backward()
    second.step()
    second.zero_grad()
    print(loss.item())
