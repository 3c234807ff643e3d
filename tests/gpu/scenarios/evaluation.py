"""An evaluation after warm recompiles the forward, and tunes its kernels when they first run."""

import torch
from _gpu import batch, finish, model, note, train

EXPECT = {
    "states": "compiling warming warm recompiling warm",
    "categories": "grad_mode",
    "cold": True,
}

net = model()
optimizer = torch.optim.AdamW(net.parameters())
compiled = torch.compile(net)
train(compiled, optimizer, steps=8)
with torch.no_grad():
    note(compiled(batch()))
train(compiled, optimizer, steps=6)
finish()
