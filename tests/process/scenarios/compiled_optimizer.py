"""A compiled optimizer with an eager model."""

import torch
from _common import batch, finish, loss_of, mark, small

EXPECT = {
    "long": True,
    "states": "compiling warming warm",
    "breaks": 1,
}

model = small()
optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.01), capturable=False)
update = torch.compile(optimizer.step)
for _ in range(8):
    loss = loss_of(model, batch())
    loss.backward()
    update()
    optimizer.zero_grad()
    mark(loss)
finish()
