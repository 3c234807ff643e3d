"""LBFGS with a closure, which runs the compiled model several times a step; SAM's two steps."""
# steps: 8

import optimizers
import torch

model = optimizers.model()
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=3)
x = torch.randn(8, 4)


def closure():
    optimizer.zero_grad()
    loss = compiled(x).square().mean()
    loss.backward()
    return loss


for _ in range(4):
    print(optimizer.step(closure).item())

base = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    compiled(x).square().mean().backward()
    with torch.no_grad():
        moves = [p.grad * 0.05 for p in model.parameters()]
        torch._foreach_add_(list(model.parameters()), moves)
    base.zero_grad()
    loss = compiled(x).square().mean()
    loss.backward()
    with torch.no_grad():
        torch._foreach_sub_(list(model.parameters()), moves)
    base.step()
    base.zero_grad()
    print(loss.item())
