"""Fifty evaluations in a plain loop, with a class that overrides train() and eval()."""
# core
# steps: 100

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.switched = 0

    def train(self, mode=True):
        self.switched += 1
        super().train(mode)
        self.norm.eval()
        return self

    def eval(self):
        return super().eval()

    def forward(self, x):
        return self.norm(self.layer(x))


torch.manual_seed(0)
model = nn.Sequential(Block(), Block(), nn.Dropout(0.1), nn.Linear(4, 1))
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for number in range(50):
    assert model.train() is model
    for _ in range(2):
        compiled(torch.randn(8, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert model.eval() is model
    with torch.no_grad():
        print(number, compiled(torch.ones(8, 4)).sum().item(), model.training)
print(model[0].switched, nn.Module.train.__module__, nn.Module.train.__qualname__)
