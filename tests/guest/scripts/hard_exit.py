"""os._exit after a step."""
# exit: 7
# unseen
# steps: 2

import os

import torch

weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(2):
    weight.sum().backward()
    optimizer.step()
    print(weight.sum().item(), flush=True)
os._exit(7)
