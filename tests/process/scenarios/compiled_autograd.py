"""Compiled autograd: the backward is captured when it runs, and compiled as a graph of its own."""

import torch
from _common import batch, finish, loss_of, mark, small

EXPECT = {
    "long": True,
    "states": "compiling warming warm",
    "breaks": 1,
    "traced": True,  # no record tells of the capture
    "on": {"2.6": {"traced": False}},  # nor does any event
}

torch._dynamo.config.compiled_autograd = True  # of what is called in a compiled function
model = small()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


@torch.compile
def forward_and_backward(inputs: torch.Tensor) -> torch.Tensor:
    loss = loss_of(model, inputs)
    loss.backward()
    return loss


for _ in range(9):
    loss = forward_and_backward(batch())
    optimizer.step()
    optimizer.zero_grad()
    mark(loss)
assert torch._dynamo.utils.counters["compiled_autograd"]["captures"] > 0
finish()
