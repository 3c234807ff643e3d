"""No TORCH_LOGS: what a user sees by default, at the recompile limit."""
# environment: TORCH_LOGS=
# steps: 12

import optimizers
import torch

model = optimizers.model()
compiled = torch.compile(lambda x, key: model(x) * len(key), backend="eager", dynamic=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for number in range(12):
    loss = compiled(torch.randn(8, 4), "x" * number).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
