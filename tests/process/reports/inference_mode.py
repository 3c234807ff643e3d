"""A validation without gradients needs a graph of its own, once."""

import torch
from _loop import net, steps

SOURCE = "pytorch/pytorch#123784"
EXPECT = {"category": "grad_mode", "names": [], "remedy": [], "recompiles": 1, "cured": None}


@torch.compile(backend="eager")
def model(x):
    return net(x).sin().cos()


def loss_of(number):
    if number % 4 == 3:
        with torch.no_grad():
            model(torch.ones(2, 4))
    return model(torch.ones(2, 4))


steps(8, loss_of)
