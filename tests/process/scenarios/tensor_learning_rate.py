"""A compiled optimizer with a scheduler and a tensor as learning rate: it compiles once."""

import torch
from _common import batch, finish, loss_of, mark, small

EXPECT = {
    "long": True,
    "states": "compiling warming warm",
}

model = small()
optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.01), foreach=True)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
update = torch.compile(optimizer.step)
for _ in range(9):
    loss = loss_of(model, batch())
    loss.backward()
    update()
    scheduler.step()
    optimizer.zero_grad()
    mark(loss)
finish()
