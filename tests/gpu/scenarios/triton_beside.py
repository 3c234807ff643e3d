"""A tuned Triton kernel next to a compiled model, outside of its graph; a new size comes later."""

import torch
from _gpu import batch, finish, mark, model
from _kernels import doubled

EXPECT = {
    "states": "compiling warming warm recompiling warm",
    "beside": "shape",
    "cold": True,
}

net = model()
optimizer = torch.optim.AdamW(net.parameters())
compiled = torch.compile(net)
for step in range(16):
    inputs = doubled(batch())
    if step >= 8:  # one more launch, of another size
        inputs = inputs + doubled(batch(32)).sum()
    loss = compiled(inputs).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    mark(loss)
finish()
