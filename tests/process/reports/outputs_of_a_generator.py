"""Compiled code iterates over a generator that was made outside of it."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#93737"
EXPECT = {
    "names": ["it iterates over an object `generator`"],
    "remedy": ["Pass a list or a tuple"],
    "recompiles": 0,
    "graphs": 0,
    "cured": 1,
    "needs": "names_objects",
}


def features(x):
    for _ in range(3):
        x = torch.relu(net(x))
        yield x


@torch.compile(backend="eager")
def total(outputs):
    return sum(output.sum() for output in outputs)


def loss_of(_number):
    outputs = features(torch.ones(2, 4))
    return total(list(outputs) if CURED else outputs)


steps(4, loss_of)
