"""``torch._dynamo.reset()`` during the run: everything compiles again, as for the first time."""

import torch
from _common import finish, small, train

EXPECT = {"long": True, "states": "compiling warming warm recompiling warm"}

model = small()
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters())
train(compiled, optimizer, steps=6)
torch._dynamo.reset()
train(compiled, optimizer, steps=6)
finish()
