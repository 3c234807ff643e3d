"""The decay of averaged weights rises: PyTorch's lerp has two formulas for it."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#186452"
EXPECT = {
    "category": "python_value",
    "names": ["`decay` went from 0.1 to", "`1.0 + ((-1)*decay) >= 0.5` no longer holds"],
    "remedy": ["pass an operator's number as a tensor"],
    "recompiles": 2,
    "cured": 0,
}
average = [p.detach().clone() for p in net.parameters()]


@torch.compile(backend="eager")
def averaged(params, decay):
    torch._foreach_lerp_(average, params, 1 - decay)


def loss_of(number):
    decay = (1 + number) / (10 + number)
    with torch.no_grad():
        averaged(list(net.parameters()), torch.tensor(decay) if CURED else decay)
    return net(torch.ones(2, 4))


steps(12, loss_of)
