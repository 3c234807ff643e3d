"""An argument that the function does not use changes its size."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#131893"
EXPECT = {
    "category": "shape",
    "names": ["names"],
    "remedy": [],
    "recompiles": 1,
    "cured": 0,
}


@torch.compile(backend="eager")
def loss_of(x, names):
    first = names
    return net(x) * 2, first


def loss(number):
    names = torch.ones(4 if number < 3 else 6)
    if CURED:
        torch._dynamo.maybe_mark_dynamic(names, 0)
    return loss_of(torch.ones(2, 4), names)[0]


steps(8, loss)
