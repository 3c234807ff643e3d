"""A boolean mask as an index: how many it selects depends on its values."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#114220"
EXPECT = {
    "category": "shape",
    "names": ["aten.nonzero", "a tensor from before the graph break"],
    "remedy": ["masks as indices", "capture_dynamic_output_shape_ops"],
    "recompiles": 1,
    "breaks": 1,
    "graphs": 3,
    "cured": 1,
}

if CURED:
    torch._dynamo.config.capture_dynamic_output_shape_ops = True


@torch.compile(backend="eager")
def loss_of(x, mask):
    return net(x)[mask].sum()


steps(8, lambda number: loss_of(torch.ones(4, 4), torch.arange(16).view(4, 4) > 2 + number % 3))
