"""Positions are cropped from a table for the largest image: that size needs a graph of its own."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#150702"
EXPECT = {
    "category": "shape",
    "names": ["16 != (x.size(3) // 2)"],
    "remedy": [],
    "recompiles": 2,
    "cured": 1,
}

table = torch.arange(256.0).view(16, 16)


@torch.compile(backend="eager")
def loss_of(x):
    height, width = x.size(2) // 2, x.size(3) // 2
    top, left = 8 - height // 2, 8 - width // 2
    positions = table[top : top + height, left : left + width].flatten()
    return net(x.reshape(-1, 4)).sum() + positions.sum()


sizes = ((24, 24), (20, 20), (16, 28), (16, 30 if CURED else 32))
steps(4, lambda number: loss_of(torch.ones(1, 1, *sizes[number])))
