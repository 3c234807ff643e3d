"""python -O -X utf8 -u: no assertions."""
# python: -O -X utf8 -u
# steps: 3

import optimizers
import torch

model = optimizers.model()
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    loss = compiled(torch.randn(8, 4)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item(), __debug__)
