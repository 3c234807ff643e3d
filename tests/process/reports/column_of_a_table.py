"""Positions are a column of a table that is wider for each prompt: their stride changes."""

import torch
from _loop import CURED, net, steps

SOURCE = "meta-pytorch/torchtune#1402"
EXPECT = {
    "category": "shape",
    "names": ["`positions`: stride of dim 0 went from 20 to 21"],
    "remedy": [".contiguous()"],
    "recompiles": 1,
    "cured": 0,
}


@torch.compile(backend="eager")
def placed(x, positions):
    return net(x) + positions[:, None]


def column(width):
    positions = torch.arange(4)[:, None].repeat(1, width)[:, 3]
    return positions.contiguous() if CURED else positions


steps(6, lambda number: placed(torch.ones(4, 4), column(20 + number)))
