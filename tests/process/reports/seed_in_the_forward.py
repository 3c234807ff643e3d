"""A layer sets its own seed in the forward, which Dynamo skips."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#101154"
EXPECT = {
    "names": ["manual_seed"],
    "remedy": ["outside"],
    "recompiles": 0,
    "breaks": 1,
    "graphs": 2,
    "cured": 1,
}


@torch.compile(backend="eager")
def loss_of(x):
    y = net(x)
    if not CURED:
        torch.manual_seed(1)
    return torch.nn.functional.dropout(y, 0.1)


def seeded(_):
    if CURED:
        torch.manual_seed(1)
    return loss_of(torch.ones(2, 4))


steps(8, seeded)
