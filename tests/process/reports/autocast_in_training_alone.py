"""The training runs in autocast, its validation does not."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#172636"
EXPECT = {
    "category": "autocast",
    "names": ["autocast"],
    "remedy": ["evaluation included"],
    "recompiles": 1,
    "cured": 0,
}

model = torch.compile(net, backend="eager")


def loss_of(number):
    with torch.autocast("cpu", torch.bfloat16, enabled=number % 6 != 5 or CURED):
        return model(torch.ones(2, 4))


steps(12, loss_of)
