"""An input is a tensor subclass in one step and a plain tensor in the next."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#187073"
EXPECT = {
    "category": None,
    "names": ["x"],
    "remedy": ["one type"],
    "recompiles": 1,
    "cured": 0,
    "versions": {"2.6": {"breaks": 1}},
}


class Async(torch.Tensor):
    pass


@torch.compile(backend="eager")
def loss_of(x):
    return net(x)


def batch(number):
    x = torch.ones(2, 4)
    return x.as_subclass(Async) if number % 6 == 5 and not CURED else x


steps(12, lambda number: loss_of(batch(number)))
