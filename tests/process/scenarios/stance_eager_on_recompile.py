"""``set_stance("eager_on_recompile")``: another shape runs eagerly, and nothing compiles."""

import torch
from _common import finish, small, train

EXPECT = {"long": True, "states": "compiling warming warm", "conditions": "uncompiled_calls"}

model = small()
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters())
train(compiled, optimizer, steps=6)
with torch.compiler.set_stance("eager_on_recompile"):
    train(compiled, optimizer, steps=3, size=7)
finish()
