"""Some calls run with a default device, which is a torch function mode."""

import contextlib

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#173115"
EXPECT = {
    "category": "global_state",
    "names": ["default device"],
    "remedy": ["around every call"],
    "recompiles": 1,
    "cured": 0,
}


@torch.compile(backend="eager")
def loss_of(x):
    return net(x).sin()


def loss(number):
    with torch.device("cpu") if number % 6 == 5 and not CURED else contextlib.nullcontext():
        return loss_of(torch.ones(2, 4))


steps(12, loss)
