"""A slice of a longer batch is not contiguous, and its strides differ."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#90665"
EXPECT = {"category": None, "names": ["x"], "remedy": ["contiguous"], "recompiles": 1, "cured": 0}


@torch.compile(backend="eager", dynamic=False)
def loss_of(x):
    return net(x)


def batch(number):
    x = torch.ones(2, 8 if number > 3 else 4)[:, :4]
    return x.contiguous() if CURED else x


steps(8, lambda number: loss_of(batch(number)))
