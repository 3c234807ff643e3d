"""What a new Python imports for a training that does not compile."""
# fresh
# steps: 3

import random

import torch

torch.manual_seed(0)
random.seed(0)
weight = torch.nn.Parameter(torch.randn(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(3):
    loss = (weight * random.random()).square().sum()
    loss.backward()
    optimizer.step()
    print(loss.item())
