"""Each block of a decoder takes one of the residuals: the tuple that it gets is shorter."""

import torch
from _loop import CURED, net, steps

SOURCE = "tdrussell/diffusion-pipe#439"
EXPECT = {
    "category": "python_value",
    "names": ["the length of `inputs` went from 5 to", "the length of `inputs` went from 3 to"],
    "recompiles": 3,
    "cured": 0,
}


@torch.compile(backend="eager")
def block(inputs):
    hidden, *residuals = inputs
    return (net(hidden) + residuals[-1], *residuals[:-1])


@torch.compile(backend="eager")
def block_of(hidden, residual):
    return net(hidden) + residual


def loss_of(_number):
    hidden, residuals = torch.ones(2, 4), [torch.ones(2, 4) for _ in range(4)]
    if CURED:
        hidden = block_of(hidden, residuals[0])
        for residual in residuals[1:]:
            hidden = block_of(hidden.detach(), residual)
        return hidden
    inputs = (hidden, *residuals)
    while len(inputs) > 1:
        inputs = block(tuple(one.detach() for one in inputs))
    return inputs[0]


steps(4, loss_of)
