"""A global of the script changes while the training runs."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#120861"
EXPECT = {"category": None, "names": ["SCALE"], "remedy": [], "recompiles": 1, "cured": 0}

SCALE = "low"


@torch.compile(backend="eager")
def loss_of(x):
    return net(x) * (2 if SCALE == "low" else 3)


def loss(number):
    global SCALE
    if number == 4 and not CURED:
        SCALE = "high"
    return loss_of(torch.ones(2, 4))


steps(8, loss)
