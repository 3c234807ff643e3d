"""LoRA: the input of the first compiled block needs no gradient, that of the others does."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#141039"
EXPECT = {"category": "requires_grad", "names": ["x"], "remedy": [], "recompiles": 1, "cured": 0}


@torch.compile(backend="eager")
def block(x):
    return net(x)


def loss_of(_):
    x = torch.ones(2, 4, requires_grad=CURED)
    for _layer in range(3):
        x = block(x)
    return x


steps(6, loss_of)
