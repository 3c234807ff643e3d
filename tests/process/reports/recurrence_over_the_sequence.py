"""A recurrent layer is a loop over the sequence: each length is unrolled, and compiles."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#97155"
EXPECT = {
    "category": "shape",
    "names": ["dim 1 went from"],
    "remedy": ["pad to your largest size", "does not help"],
    "recompiles": 5,
    "cured": 0,
}
cell = torch.nn.Linear(8, 4)


@torch.compile(backend="eager")
def loss_of(x):
    state = torch.zeros(x.size(0), 4)
    for moment in range(x.size(1)):
        state = torch.tanh(cell(torch.cat([x[:, moment], state], 1)))
    return net(state)


LENGTHS = (9, 7, 11, 8, 10, 6)
steps(6, lambda number: loss_of(torch.ones(3, 12 if CURED else LENGTHS[number], 4)))
