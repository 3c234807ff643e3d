"""The precision is a context manager that the step makes and compiled code enters."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#194754"
EXPECT = {
    "category": "object_identity",
    "names": ["precision"],
    "remedy": ["use the same one"],
    "recompiles": 5,
    "cured": 0,
}


@torch.compile(backend="eager")
def loss_of(x, precision):
    with precision:
        return net(x)


once = torch.autocast("cpu", torch.bfloat16)


def precision():
    return once if CURED else torch.autocast("cpu", torch.bfloat16)


steps(6, lambda _: loss_of(torch.ones(2, 4), precision()))
