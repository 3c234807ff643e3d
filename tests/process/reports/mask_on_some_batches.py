"""A mask is ``None`` on the batches without padding."""

import torch
from _loop import CURED, net, steps

SOURCE = "huggingface/transformers: collators that omit a mask"
EXPECT = {"category": None, "names": ["mask"], "remedy": ["mask"], "recompiles": 1, "cured": 0}


@torch.compile(backend="eager")
def loss_of(x, mask=None):
    y = net(x)
    return y if mask is None else y * mask


def mask(number):
    return torch.ones(2, 4) if CURED or number % 6 == 5 else None


steps(12, lambda number: loss_of(torch.ones(2, 4), mask(number)))
