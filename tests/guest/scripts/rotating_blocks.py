"""BAdam: the inner optimizer's parameters rotate over blocks that stay alive."""
# steps: 24

import optimizers
import torch

model = optimizers.model()
compiled = torch.compile(model, backend="eager")
blocks = [list(model[0].parameters()), list(model[2].parameters())]
inner = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = optimizers.Blockwise(inner, blocks, every=3)
for _ in range(24):
    loss = compiled(torch.randn(8, 4)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
