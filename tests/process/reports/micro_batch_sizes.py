"""A trainer halves the micro-batch until it fits: each size compiles at first."""

import torch
from _loop import CURED, net, steps

SOURCE = "mosaicml/composer#2214"
EXPECT = {"category": "shape", "names": ["x"], "remedy": [], "recompiles": 1, "cured": 0}


@torch.compile(backend="eager", dynamic=True if CURED else None)
def loss_of(x):
    return net(x)


steps(8, lambda number: loss_of(torch.ones((32, 16, 8, 4)[number // 2], 4)))
