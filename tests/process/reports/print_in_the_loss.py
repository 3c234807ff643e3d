"""A print in compiled code is a graph break."""

import builtins

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#93486"
EXPECT = {
    "category": None,
    "names": [],
    "remedy": ["print"],
    "recompiles": 0,
    "breaks": 1,
    "cured": 0,
}

if CURED:
    torch._dynamo.config.reorderable_logging_functions.add(builtins.print)


@torch.compile(backend="eager")
def loss_of(x):
    y = net(x)
    print("loss")
    return y.relu()


steps(6, lambda _: loss_of(torch.ones(2, 4)))
