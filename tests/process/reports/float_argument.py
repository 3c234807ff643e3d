"""With static shapes a float argument is still a constant: each new value compiles."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#149406"
EXPECT = {
    "category": "python_value",
    "names": ["y"],
    "remedy": ["tensor"],
    "recompiles": 2,
    "cured": 0,
    "versions": {"2.6": {"recompiles": 1}},
}


@torch.compile(dynamic=False, backend="eager")
def loss_of(x, y):
    return net(x) * y


def argument(number):
    value = (1.5, 2.5, 3.5)[number // 4]
    return torch.tensor(value) if CURED else value


steps(12, lambda number: loss_of(torch.ones(2, 4), argument(number)))
