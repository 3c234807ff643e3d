"""Inductor: C++ kernels, in the default mode and with a compiled optimizer."""
# environment: TORCH_LOGS=recompiles,graph_breaks,guards,graph_code,output_code
# steps: 4
# seconds: 900

import optimizers
import torch

model = optimizers.model()
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
step = torch.compile(optimizer.step)
for _ in range(4):
    loss = compiled(torch.randn(8, 4)).square().mean()
    loss.backward()
    step()
    optimizer.zero_grad()
    print(loss.item())
