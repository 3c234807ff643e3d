"""Neighbour sampling gives another number of edges in each step."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#94640"
EXPECT = {
    "category": "shape",
    "names": ["edge_index"],
    "remedy": ["dynamic"],
    "recompiles": 1,
    "cured": 0,
}


@torch.compile(backend="eager")
def loss_of(x, edge_index):
    return net(x)[edge_index[0]]


def edges(number):
    index = torch.zeros(2, 50 + number, dtype=torch.long)
    if CURED:
        torch._dynamo.mark_dynamic(index, 1)
    return index


steps(6, lambda number: loss_of(torch.ones(2, 4), edges(number)))
