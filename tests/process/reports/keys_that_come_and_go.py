"""Keyword arguments are passed only for batches that need padding."""

import torch
from _loop import CURED, net, steps

SOURCE = "xdit-project/xDiT#781"
EXPECT = {
    "category": None,
    "names": ["attention"],
    "remedy": ["number of items"],
    "recompiles": 1,
    "cured": 0,
}


@torch.compile(backend="eager")
def loss_of(x, attention):
    return net(x) * len(attention)


def attention(number):
    return {"a": 1, "b": 2} if CURED or number % 6 == 5 else {"a": 1}


steps(12, lambda number: loss_of(torch.ones(2, 4), attention(number)))
