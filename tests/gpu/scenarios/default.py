"""Triton kernels, tuned at their first run; the backward compiles on the autograd thread."""

import torch
from _gpu import finish, model, train

EXPECT = {"states": "compiling warming warm", "cold": True}

net = model()
optimizer = torch.optim.AdamW(net.parameters())
train(torch.compile(net), optimizer, steps=10)
finish()
