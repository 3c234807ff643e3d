"""Stochastic depth: the number of layers of a step is an argument."""

import torch
from _loop import CURED, steps

SOURCE = "pytorch/pytorch#95425"
EXPECT = {
    "category": "python_value",
    "names": ["kept"],
    "remedy": ["keep it out of the compiled function"],
    "recompiles": 3,
    "cured": 0,
}

layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(4))


@torch.compile(backend="eager")
def loss_of(x, kept):
    for layer in layers[:kept]:
        x = layer(x)
    return x


def loss(number):
    x = torch.ones(2, 4, requires_grad=True)
    kept = 4 - number % 4
    if not CURED:
        return loss_of(x, kept)
    for layer in layers[:kept]:
        x = torch.compile(layer, backend="eager")(x)
    return x


steps(8, loss)
