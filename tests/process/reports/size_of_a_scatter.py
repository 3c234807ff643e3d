"""A scatter of a graph net takes the number of its nodes from the index: a graph break."""

import torch
from _loop import CURED, net, steps

SOURCE = "rusty1s/pytorch_scatter#457"
EXPECT = {
    "names": ["item"],
    "remedy": ["set torch._dynamo.config.capture_scalar_outputs"],
    "recompiles": 0,
    "breaks": 2,
    "cured": 0,
}
torch._dynamo.config.capture_scalar_outputs = CURED


def scattered(x, index):
    nodes = int(index.max()) + 1
    return x.new_zeros(nodes, x.shape[1]).index_add(0, index, x)


@torch.compile(backend="eager")
def passed(x, index):
    return scattered(net(x), index)


steps(6, lambda _: passed(torch.ones(12, 4), torch.arange(12) % 5))
