"""Autocast is switched on during the run and off again: one recompile, for the first switch."""

import torch
from _common import finish, small, train

EXPECT = {
    "long": True,
    "states": "compiling warming warm recompiling warm",
    "categories": "autocast",
}

model = small()
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters())
train(compiled, optimizer, steps=6)
with torch.autocast("cpu", torch.bfloat16):
    train(compiled, optimizer, steps=6)
train(compiled, optimizer, steps=5)
finish()
