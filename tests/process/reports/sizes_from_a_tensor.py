"""The sizes of a split come from a tensor: ``tolist()`` is a graph break."""

import torch
from _loop import CURED, net, steps

SOURCE = "PrimeIntellect-ai/prime-rl#996"
EXPECT = {
    "category": "python_value",
    "names": ["needs the value of a tensor", "a value from before the graph break"],
    "remedy": ["capture_scalar_outputs"],
    "recompiles": 1,
    "breaks": 1,
    "graphs": 3,
    "cured": 1,
    "needs": "breaks_at_tolist",
}

if CURED:
    torch._dynamo.config.capture_scalar_outputs = True


@torch.compile(backend="eager")
def loss_of(x, sizes):
    return torch.cat([part.sum(0, keepdim=True) for part in torch.split(net(x), sizes.tolist())])


steps(8, lambda number: loss_of(torch.ones(8, 4), torch.tensor([2 + number % 4, 6 - number % 4])))
