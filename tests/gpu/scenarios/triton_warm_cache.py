"""Triton kernels that its cache on disk has: nothing is built, but they are tuned all the same."""

import torch
from _gpu import batch, finish, mark, model
from _kernels import doubled, halved

EXPECT = {"states": "compiling warming warm", "cold": True, "warm_cache": True}

net = model()
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(8):
    loss = net(halved(doubled(batch()))).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    mark(loss)
finish()
