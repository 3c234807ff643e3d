"""Two epochs with a smaller last batch: the first of these compiles, the second does not."""

import torch
from _common import finish, small, train

EXPECT = {"long": True, "states": "compiling warming warm recompiling warm", "categories": "shape"}

model = small()
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters())
for _epoch in range(2):
    train(compiled, optimizer, steps=5, size=8)
    train(compiled, optimizer, steps=1, size=3)
finish()
