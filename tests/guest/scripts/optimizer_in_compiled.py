"""Optimizers made inside of a compiled function, as in MAML and test-time training."""
# torch: 2.13
# fault: torch 2.15: a logged traceback has a frame of PyTorch's, which inlines a wrapper

import gc

import optimizers
import torch


@torch.compile(backend="eager")
def adapt(x):
    weight = torch.nn.Parameter(torch.ones(4))
    inner = optimizers.Sign([weight])
    weight.grad = x * 2
    inner.step()
    return (weight * x).sum()


@torch.compile(backend="eager")
def made(x):
    inner = torch.optim.SGD([torch.nn.Parameter(torch.ones(4))], lr=0.1)
    return x * inner.param_groups[0]["lr"]


for _ in range(3):
    print(adapt(torch.ones(4)).item(), made(torch.ones(4)).sum().item())
    gc.collect()  # else a guard may name an optimizer that only one of the two runs still has
