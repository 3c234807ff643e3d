"""Stances, resets, disabled functions and nested compiled functions."""
# torch: 2.11
# steps: 8

import optimizers
import torch

model = optimizers.model()
inner = torch.compile(model[0], backend="eager")


@torch.compiler.disable
def outside(x):
    return x * 2


@torch.compile(backend="eager")
def outer(x):
    return model[2](torch.tanh(outside(inner(x))))


optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(8):
    if number == 3:
        torch.compiler.set_stance("eager_on_recompile")
    if number == 5:
        torch.compiler.set_stance("default")
        torch.compiler.reset()
    with torch.compiler.set_stance("force_eager" if number == 6 else "default"):
        loss = outer(torch.randn(2 + number, 4)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
    print(torch._dynamo.eval_frame._stance.stance)
torch.compiler.set_stance("fail_on_recompile")
try:
    outer(torch.ones(2, 4, dtype=torch.float64))
except RuntimeError as error:
    print(type(error).__name__, str(error).splitlines()[0])
