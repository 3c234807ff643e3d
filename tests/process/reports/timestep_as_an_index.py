"""A timestep of the whole batch is a tensor without dims: as an index it is a constant."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#114293 (with tensors)"
EXPECT = {
    "category": "python_value",
    "names": ["`timestep`, a tensor as an index, is no longer 40"],
    "remedy": ["give it one dim (x[t[None]] instead of x[t])"],
    "recompiles": 5,
    "cured": 0,
}
alphas = torch.linspace(1, 0.1, 50)


@torch.compile(backend="eager")
def denoised(x, timestep):
    return net(x) * alphas[timestep[None] if CURED else timestep]


steps(6, lambda number: denoised(torch.ones(2, 4), torch.tensor(40 - number)))
