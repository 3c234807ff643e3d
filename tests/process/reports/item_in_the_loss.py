"""``Tensor.item()`` in compiled code is a graph break by default."""

import torch
from _loop import CURED, net, steps

SOURCE = "sgl-project/SpecForge#222"
EXPECT = {
    "category": None,
    "names": [],
    "remedy": ["capture_scalar_outputs"],
    "recompiles": 0,
    "breaks": 1,
    "cured": 0,
}

torch._dynamo.config.capture_scalar_outputs = CURED


@torch.compile(backend="eager")
def loss_of(x):
    y = net(x)
    return y / (x.sum().item() + 1e-6)


steps(6, lambda _: loss_of(torch.ones(2, 4)))
