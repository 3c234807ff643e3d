"""A compiled optimizer with a scheduler: each new float recompiles, up to the limit."""

import torch
from _common import batch, finish, limit_recompiles, loss_of, mark, small

EXPECT = {
    "env": {"WARMWATCH_FULL_REASONS": "1"},
    "states": "compiling warming warm",
    "categories": "python_value python_value python_value python_value",
    "uncompiled_graphs": 1,
    "fallbacks": 1,
    "long": True,
    "limits": "the trace also shows the graph of step 2 that was tried with a symbolic float and "
    "discarded",
}

limit_recompiles(4)

model = small()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)
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
