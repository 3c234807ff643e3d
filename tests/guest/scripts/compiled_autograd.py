"""Compiled autograd, with a compiled step of an optimizer of one's own."""

import optimizers
import torch

model = optimizers.model()
compiled = torch.compile(model, backend="eager")
optimizer = optimizers.Sign(model.parameters())


@torch.compile(backend="eager")
def iteration(x):
    loss = compiled(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss


torch._dynamo.config.compiled_autograd = True
for _ in range(4):
    optimizer.zero_grad(set_to_none=False)
    print(iteration(torch.randn(8, 4)).item())
