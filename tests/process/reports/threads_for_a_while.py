"""The number of threads is changed while the training runs."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#170585"
EXPECT = {
    "category": "global_state",
    "names": ["threads"],
    "remedy": ["once, before the first compiled call"],
    "recompiles": 1,
    "cured": 0,
}

torch.set_num_threads(2)


@torch.compile(backend="eager")
def loss_of(x):
    return net(x) * 2


def loss(number):
    if number == 4 and not CURED:
        torch.set_num_threads(1)
    return loss_of(torch.ones(2, 4))


steps(8, loss)
