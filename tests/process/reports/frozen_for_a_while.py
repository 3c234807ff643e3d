"""Layers are frozen and unfrozen while the training runs."""

import torch
from _loop import net, steps

SOURCE = "pytorch/pytorch#139476"
EXPECT = {
    "category": "requires_grad",
    "names": [],
    "remedy": [],
    "recompiles": 1,
    "cured": None,
    "needs": "guards_parameters",
}

model = torch.compile(torch.nn.Sequential(torch.nn.Linear(4, 4), net), backend="eager")


def loss_of(number):
    net.requires_grad_(number % 4 < 2)
    return model(torch.ones(2, 4))


steps(8, loss_of)
