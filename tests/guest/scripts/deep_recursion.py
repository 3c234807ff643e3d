"""A model near the limit of recursion: the agent's frames must fit below it."""

import sys

import torch
from torch import nn


class Deep(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.inner = Deep(depth - 1) if depth else nn.Identity()

    def forward(self, x):
        return self.inner(x)


def depth():
    frame, found = sys._getframe(), 0
    while frame:
        frame, found = frame.f_back, found + 1
    return found


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 1), Deep(150))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
most = []
for room in range(60, 4, -1):

    def below(left):
        if left:
            return below(left - 1)
        optimizer.step()
        return True

    model(torch.ones(2, 4)).sum().backward()
    try:
        below(sys.getrecursionlimit() - depth() - room)
        most.append(room)
    except RecursionError:
        optimizer.zero_grad()
print("the fewest frames left for a step:", min(most))
model.eval()
model.train()
print(model[0].weight.sum().item())
