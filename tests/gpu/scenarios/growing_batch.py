"""The batch grows while it trains: dynamic after the first change, and once more at
65,536 rows, as an H100 showed; then longer steps."""

import torch
from _gpu import finish, model, train

EXPECT = {
    "states": "compiling warming warm recompiling warm recompiling warm",
    "categories": "shape shape",
    "conditions": "slower",  # the last growth needs no compilation
    "cold": True,
}

net = model()
optimizer = torch.optim.AdamW(net.parameters())
compiled = torch.compile(net)
train(compiled, optimizer, steps=40)
train(compiled, optimizer, steps=60, size=4096)
train(compiled, optimizer, steps=100, size=65536)
train(compiled, optimizer, steps=100, size=262144)
finish()
