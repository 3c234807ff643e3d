"""CUDA graphs: recorded in the second iteration, replayed from the third."""

import torch
from _gpu import finish, model, train

EXPECT = {"states": "compiling warming warm", "cold": True}

net = model()
optimizer = torch.optim.AdamW(net.parameters())
train(torch.compile(net, mode="reduce-overhead"), optimizer, steps=12)
finish()
