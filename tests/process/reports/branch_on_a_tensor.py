"""``if tensor.isinf().any()`` needs the value of a tensor."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#180406"
EXPECT = {
    "category": None,
    "names": ["branches on a tensor"],
    "remedy": ["torch.where"],
    "recompiles": 0,
    "breaks": 0,
    "graphs": 2,
    "cured": 1,
}


@torch.compile(backend="eager")
def loss_of(x):
    y = net(x)
    if CURED:
        return torch.where(y.isinf(), 0.0, y)
    if y.isinf().any():
        y = y.clamp(-1, 1)
    return y.relu()


steps(6, lambda _: loss_of(torch.ones(2, 4)))
