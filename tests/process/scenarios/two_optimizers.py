"""A matrix optimizer and AdamW, each for its own parameters: together they make one step."""

import torch
from _common import batch, finish, loss_of, mark, small

EXPECT = {"long": True, "states": "compiling warming warm"}

Matrix = getattr(torch.optim, "Muon", torch.optim.SGD)
model = small()
compiled = torch.compile(model)
matrices = Matrix([p for p in model.parameters() if p.ndim == 2], lr=0.01)
vectors = torch.optim.AdamW([p for p in model.parameters() if p.ndim < 2])
for _ in range(8):
    loss = loss_of(compiled, batch())
    loss.backward()
    matrices.step()
    vectors.step()
    model.zero_grad()
    mark(loss)
finish()
