"""The last batch of an epoch has one sample: size 1 always needs a graph of its own."""

import torch
from _loop import CURED, net, optimizer
from torch.utils.data import DataLoader, TensorDataset

SOURCE = "saforem2/ezpz#190"
EXPECT = {"category": "shape", "names": ["x"], "remedy": ["drop_last"], "recompiles": 1, "cured": 0}

loader = DataLoader(TensorDataset(torch.ones(9, 4)), batch_size=2, drop_last=CURED)


@torch.compile(backend="eager")
def loss_of(x):
    return net(x)


for _ in range(2):
    for (batch,) in loader:
        loss_of(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
