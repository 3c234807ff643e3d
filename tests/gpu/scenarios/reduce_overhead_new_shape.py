"""A new shape after warm: compiled again, and new CUDA graphs are recorded."""

import torch
from _gpu import finish, model, train

EXPECT = {
    "states": "compiling warming warm recompiling warm",
    "categories": "shape",
    "cold": True,
}

net = model()
optimizer = torch.optim.AdamW(net.parameters())
compiled = torch.compile(net, mode="reduce-overhead")
train(compiled, optimizer, steps=8)
train(compiled, optimizer, steps=8, size=48)
finish()
