"""Another tool patches Module.train between eval() and train(), and restores what it found."""
# steps: 2400

from unittest import mock

import torch
import torch._dynamo
from torch import nn

model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(1200):
    for _ in range(2):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    original = nn.Module.train
    with mock.patch.object(
        nn.Module, "train", lambda self, mode=True, original=original: original(self, mode)
    ):
        model.train()
print(model.weight)
