"""The first evaluation under ``no_grad`` recompiles the forward; the second costs nothing."""

import torch
from _common import batch, finish, note, small, train

EXPECT = {
    "long": True,
    "states": "compiling warming warm recompiling warm",
    "categories": "grad_mode",
}

model = small()
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    train(compiled, optimizer, steps=6)
    with torch.no_grad():
        note(compiled(batch()))
train(compiled, optimizer, steps=4)
finish()
