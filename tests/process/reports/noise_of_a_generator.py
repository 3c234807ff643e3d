"""Noise is drawn in the model, with a random generator of its own."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#92633"
EXPECT = {
    "names": ["`Generator`"],
    "remedy": ["draw the random numbers outside of the compiled function"],
    "recompiles": 0,
    "breaks": 2,
    "cured": 0,
    "needs": "names_objects",
}
source = torch.Generator().manual_seed(0)


def drawn():
    return torch.randn(2, 4, generator=source)


@torch.compile(backend="eager")
def denoised(x, noise=None):
    return net(x + (drawn() if noise is None else noise))


steps(4, lambda _: denoised(torch.ones(2, 4), *([drawn()] if CURED else [])))
