"""A warm training takes five times as long a step for half a minute, then none for six seconds."""

import time

import torch
from _common import finish, small, train

EXPECT = {"states": "compiling warming warm", "conditions": "slower silent", "long": True}

model = small()
compiled, optimizer = torch.compile(model), torch.optim.AdamW(model.parameters())
for length, steps in ((0.0, 4), (0.05, 150), (0.25, 130)):
    for _ in range(steps):
        time.sleep(length)
        train(compiled, optimizer, steps=1)
time.sleep(6)
train(compiled, optimizer, steps=2)
finish()
