"""Compiled code sets a variable of the environment: a graph break in Python's ``os``."""

import os

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/rl#3725"
EXPECT = {"remedy": ["outside of the compiled"], "recompiles": 0, "breaks": 1, "cured": 0}
if CURED:
    os.environ["LIST_TO_STACK"] = "1"


@torch.compile(backend="eager")
def loss_of(x):
    y = net(x)
    if not CURED:
        os.environ["LIST_TO_STACK"] = "1"
    return y.relu()


steps(6, lambda _: loss_of(torch.ones(2, 4)))
