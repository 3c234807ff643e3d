"""The gradient scaler's step is compiled, which PyTorch does not trace."""

import torch
from _loop import CURED, net, optimizer

SOURCE = "pytorch/pytorch#138412"
EXPECT = {
    "names": ["GradScaler.step"],
    "remedy": ["outside of the compiled"],
    "recompiles": 0,
    "breaks": 2,
    "cured": 0,
}
scaler = torch.amp.GradScaler("cpu")


def update():
    scaler.step(optimizer)
    scaler.update()


step = update if CURED else torch.compile(update, backend="eager")
for _ in range(6):
    scaler.scale(net(torch.ones(2, 4)).sum()).backward()
    step()
    optimizer.zero_grad()
