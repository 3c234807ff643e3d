"""eval() and train() called inside of a compiled function."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))


@torch.compile(backend="eager")
def both(x):
    model.eval()
    steady = model(x)
    model.train()
    return steady + model(x)


for _ in range(3):
    print(both(torch.ones(2, 4)).sum().item(), model.training)
