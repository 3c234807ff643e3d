"""Many shapes with ``dynamic=False``: each compiles, until PyTorch reaches the recompile limit."""

import torch
from _common import finish, limit_recompiles, small, train

EXPECT = {
    "states": "compiling warming warm recompiling warm",
    "categories": "shape shape shape",
    "fallbacks": 1,
}

limit_recompiles(3)
model = small()
compiled = torch.compile(model, dynamic=False, backend="eager")  # a limit of Dynamo
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
train(compiled, optimizer, steps=8)
for size in (5, 6, 7, 8, 9, 10, 11, 12):  # the last six run eagerly
    train(compiled, optimizer, steps=1, size=size)
train(compiled, optimizer, steps=2)
finish()
