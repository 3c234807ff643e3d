"""Optimizers of ten libraries' shapes, not compiled, beside a compiled model."""
# steps: 40

import optimizers
import torch

for name, make in optimizers.shapes().items():
    torch._dynamo.reset()
    model = optimizers.model()
    compiled = torch.compile(model, backend="eager")
    optimizer = make(list(model.parameters()))
    for _ in range(4):
        loss = compiled(torch.randn(8, 4)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(name, loss.item())
