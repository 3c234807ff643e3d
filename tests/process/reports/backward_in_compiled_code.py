"""The whole step is compiled: the backward is a graph break."""

import torch
from _loop import CURED, net, optimizer

SOURCE = "pytorch/pytorch#120814"
EXPECT = {
    "names": ["backward"],
    "remedy": ["Compile the forward alone"],
    "recompiles": 0,
    "breaks": 1,
    "cured": 0,
}


def loss_of(x):
    return net(x).square().sum()


def whole(x):
    loss_of(x).backward()


step = whole
if CURED:
    loss_of = torch.compile(loss_of, backend="eager")
else:
    step = torch.compile(whole, backend="eager")
for _ in range(8):
    step(torch.ones(2, 4))
    optimizer.step()
    optimizer.zero_grad()
