"""An eager training whose only compiler is a tuned Triton kernel; each new size is tuned again."""

import torch
from _gpu import batch, finish, mark, model
from _kernels import doubled, halved

EXPECT = {
    "states": "compiling warming warm recompiling warm",
    "beside": "shape shape",
    "cold": True,
}

net = model()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(16):
    size, block = (64, 1024) if step < 8 else (48, 512)
    loss = net(halved(doubled(batch(size)), block)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    mark(loss)
finish()
