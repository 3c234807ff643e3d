"""A loop over ``range(start, end)``: each call has other bounds."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#114293"
EXPECT = {
    "category": "python_value",
    "names": ["start"],
    "remedy": ["select with a mask"],
    "recompiles": 4,
    "cured": 0,
}


@torch.compile(backend="eager")
def loss_of(x, start, end):
    y = net(x)
    total = y[start]
    for i in range(start + 1, end):
        total = total + y[i]
    return total


@torch.compile(backend="eager")
def masked(x, weight):
    return (net(x) * weight[:, None]).sum(0)


def loss(number):
    start = 2 + number
    if not CURED:
        return loss_of(torch.ones(12, 4), start, start + 3)
    weight = torch.zeros(12)
    weight[start : start + 3] = 1
    return masked(torch.ones(12, 4), weight)


steps(5, loss)
