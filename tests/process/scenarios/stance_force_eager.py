"""``set_stance("force_eager")`` for the first steps: compiling begins when it is lifted."""

import torch
from _common import finish, small, train

EXPECT = {
    "long": True,
    "states": "warming eager compiling warming warm",
    "conditions": "uncompiled_calls",
}

model = small()
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters())
with torch.compiler.set_stance("force_eager"):
    train(compiled, optimizer, steps=6)
train(compiled, optimizer, steps=7)
finish()
