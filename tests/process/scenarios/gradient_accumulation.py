"""Four micro-batches in a step: a compilation in any of them belongs to that step."""

import torch
from _common import batch, finish, loss_of, mark, small

EXPECT = {"long": True, "states": "compiling warming warm"}

model = small()
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(7):
    for _ in range(4):
        loss = loss_of(compiled, batch()) / 4
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    mark(loss)
finish()
