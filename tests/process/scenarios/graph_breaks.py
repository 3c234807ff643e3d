"""Graph breaks of several kinds: a print, a data-dependent branch, a disabled function."""

import torch
from _common import batch, finish, mark, small

EXPECT = {
    "long": True,
    "states": "compiling warming warm",
    "breaks": 3,
    "uncounted_breaks": 1,
    "limits": "PyTorch's counter does not count the break at a data-dependent branch; its trace "
    "and the agent show it",
}


@torch.compiler.disable
def outside(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@torch.compile
def forward(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = model(x)
    print("", end="")
    y = outside(y.sin()).cos()
    if y.sum() > -1e9:
        y = y + 1
    return y


model = small()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(8):
    loss = forward(model, batch()).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    mark(loss)
finish()
