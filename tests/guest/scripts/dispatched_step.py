"""A step inside modes, inference_mode, no_grad, and on deterministic algorithms."""
# steps: 5

import optimizers
import torch

torch.use_deterministic_algorithms(True)
torch.set_default_dtype(torch.float64)
torch.set_float32_matmul_precision("high")
model = optimizers.model()
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(5):
    loss = compiled(torch.randn(8, 4)).square().mean()
    loss.backward()
    with torch.no_grad():
        optimizer.step()
    optimizer.zero_grad()
    with torch.inference_mode():
        print(loss.item(), compiled(torch.ones(2, 4)).sum().item())
