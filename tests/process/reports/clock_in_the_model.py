"""The model times itself: a clock is written in C."""

import time

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#157352"
EXPECT = {
    "names": ["time.time"],
    "remedy": ["outside"],
    "recompiles": 0,
    "breaks": 1,
    "cured": 0,
}


@torch.compile(backend="eager")
def loss_of(x):
    values = net(x)
    if not CURED:
        time.time()
    return values * 2


steps(8, lambda _: loss_of(torch.ones(2, 4)))
