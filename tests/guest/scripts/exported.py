"""torch.export in the middle of a training, strict and not, and torch.jit.trace."""
# steps: 4

import optimizers
import torch

model = optimizers.model()
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(4):
    compiled(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    program = torch.export.export(model, (torch.ones(2, 4),), strict=number % 2 == 0)
    print(len(program.graph.nodes), program.module()(torch.ones(2, 4)).sum().item())
    print(torch.jit.trace(model, torch.ones(2, 4))(torch.ones(2, 4)).sum().item())
