"""A dict carries the longest length of a batch as an int."""

import torch
from _loop import CURED, net, steps

SOURCE = "kijai/ComfyUI-MochiWrapper#44"
EXPECT = {
    "category": "python_value",
    "names": ["packed"],
    "remedy": ["dynamic"],
    "recompiles": 1,
    "cured": 0,
}


@torch.compile(backend="eager")
def loss_of(x, packed):
    return net(x) * packed["max_seqlen"]


def packed(number):
    length = (31868, 30000, 29000)[number // 6]
    return {"max_seqlen": torch.tensor(length) if CURED else length}


steps(18, lambda number: loss_of(torch.ones(2, 4), packed(number)))
