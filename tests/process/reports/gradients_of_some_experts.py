"""A compiled optimizer step: parameters that a step did not use have no gradient."""

import torch
from _loop import CURED, net, optimizer

SOURCE = "pytorch/pytorch#121291"
EXPECT = {
    "category": "python_value",
    "names": ["`experts[0].grad`: type went from Tensor to None"],
    "remedy": ["zeros_like", "set_to_none=False"],
    "recompiles": 2,
    "cured": 0,
}
experts = [torch.nn.Parameter(torch.ones(4, 4)) for _ in range(3)]
if CURED:
    for expert in experts:
        expert.grad = torch.zeros_like(expert)


@torch.compile(backend="eager")
@torch.no_grad()
def update():
    for expert in experts:
        if expert.grad is not None:
            expert.add_(expert.grad, alpha=-0.01)


for chosen in (0, 0, 0, 0, 0, 1, 2, 1):
    net(torch.ones(2, 4) @ experts[chosen]).sum().backward()
    update()
    for expert in experts:
        if CURED:
            expert.grad.zero_()
        else:
            expert.grad = None
    optimizer.step()
    optimizer.zero_grad()
