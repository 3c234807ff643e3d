"""Targets come from a teacher in inference mode in some steps."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#134249"
EXPECT = {
    "category": "object_identity",
    "names": ["target", "inference mode"],
    "remedy": ["inference"],
    "recompiles": 1,
    "cured": 0,
}


@torch.compile(backend="eager")
def loss_of(x, target):
    return net(x) - target


def target(number):
    with torch.inference_mode(number % 6 == 5 and not CURED):
        return torch.ones(2, 4)


steps(12, lambda number: loss_of(torch.ones(2, 4), target(number)))
