"""A batch norm without momentum averages over all batches, and reads how many these are."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#194504"
EXPECT = {
    "names": ["item()"],
    "remedy": ["Give BatchNorm a momentum"],
    "recompiles": 0,
    "breaks": 1,
    "graphs": 0,
    "cured": 1,
}
norm = torch.nn.BatchNorm1d(4, momentum=0.1 if CURED else None)
model = torch.compile(torch.nn.Sequential(net, norm), backend="eager")
steps(6, lambda _: model(torch.rand(4, 4)))
