"""The loss of a physics-informed net has the derivative of its input: a graph break."""

import torch
from _loop import CURED, net, optimizer

SOURCE = "pytorch/pytorch#133230"
EXPECT = {
    "names": ["torch.autograd.grad"],
    "remedy": ["trace_autograd_ops"],
    "recompiles": 0,
    "breaks": 1,
    "cured": 0,
}
if CURED:
    torch._dynamo.config.trace_autograd_ops = True


@torch.compile(backend="eager")
def residual(x):
    u = net(x).tanh()
    du = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
    return (du - u).square().mean()


for _ in range(6):
    residual(torch.ones(8, 4, requires_grad=True)).backward()
    optimizer.step()
    optimizer.zero_grad()
