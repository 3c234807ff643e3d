"""Gradients are scaled by a float that follows from the number of tokens."""

import torch
from _loop import CURED, net, optimizer

SOURCE = "meta-pytorch/torchtune#2624"
EXPECT = {
    "category": "python_value",
    "names": ["`factor` went from 0.08 to"],
    "remedy": ["as a tensor"],
    "recompiles": 5,
    "cured": 0,
}


@torch.compile(backend="aot_eager")
def scale(gradients, factor):
    torch._foreach_mul_(gradients, factor)


for number in range(6):
    net(torch.ones(2, 4)).sum().backward()
    factor = 8 / (100 + number)
    scale(
        [parameter.grad for parameter in net.parameters()],
        torch.tensor(factor) if CURED else factor,
    )
    optimizer.step()
    optimizer.zero_grad()
