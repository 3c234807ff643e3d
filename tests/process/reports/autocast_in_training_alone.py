"""The training runs in autocast, its validation does not."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#172636"
EXPECT = {
    "category": "autocast",
    "names": ["autocast"],
    "remedy": [],
    "recompiles": 1,
    "cured": 0,
}

model = torch.compile(net, backend="eager")


def loss_of(number):
    with torch.autocast("cpu", torch.bfloat16, enabled=number % 4 != 3 or CURED):
        return model(torch.ones(2, 4))


steps(8, loss_of)
