"""An eager training with a compiler of its own inside ``activity()``: at first and once later."""

import time

import torch
from _common import compiles, finish, small, train

import warmwatch

EXPECT = {"states": "compiling warming warm recompiling warm"}

model = small()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    with compiles("custom", "my_dsl"), warmwatch.activity("my_dsl"):
        time.sleep(0.3)  # what such a compiler takes
    train(model, optimizer, steps=6)
finish()
