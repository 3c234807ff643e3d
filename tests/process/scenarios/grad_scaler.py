"""A gradient scaler meets an overflow and skips that optimizer step, which does not count."""

import torch
from _common import batch, finish, loss_of, mark, note, small

EXPECT = {"long": True, "states": "compiling warming warm"}

model = small()
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for iteration in range(10):
    loss = loss_of(compiled, batch())
    scaler.scale(loss * (float("inf") if iteration == 5 else 1.0)).backward()
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    if scaler.get_scale() < before:
        assert iteration == 5
        note(loss)
    else:
        assert iteration != 5
        mark(loss)
finish()
