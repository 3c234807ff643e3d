"""Inductor in a new Python: imports, compile workers, the end of the process."""
# fresh
# environment: TORCH_LOGS=recompiles,graph_breaks
# steps: 3
# seconds: 900

import torch

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    loss = compiled(torch.randn(8, 4)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
