"""The model is converted to another dtype after the first steps."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#152307"
EXPECT = {"category": "dtype", "names": [], "remedy": [], "recompiles": 1, "cured": 0}

model = torch.compile(net, backend="eager")
if CURED:
    net.to(torch.float64)


def loss_of(number):
    if number == 4:
        net.to(torch.float64)
    return model(torch.ones(2, 4, dtype=net.weight.dtype))


steps(8, loss_of)
