"""Steps of a warm training take twenty times as long for half a minute; then it pauses."""

import time

import torch
from _common import finish, small, train

EXPECT = {"states": "compiling warming warm", "conditions": "slower silent", "long": True}

model = small()
compiled, optimizer = torch.compile(model), torch.optim.AdamW(model.parameters())
began = 0.0
for length, steps in ((0.0, 4), (0.02, 300), (0.4, 75)):
    for _ in range(steps):
        began = time.monotonic()
        time.sleep(length)
        train(compiled, optimizer, steps=1)
time.sleep(max(6.0, 20 * (time.monotonic() - began)))  # so many of the last steps, on any machine
train(compiled, optimizer, steps=2)
finish()
