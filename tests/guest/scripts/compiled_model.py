"""A compiled model in a plain loop, with an evaluation and a ragged last batch."""
# core
# steps: 6

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 1))
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for epoch in range(2):
    model.train()
    for size in (8, 8, 3):
        loss = compiled(torch.randn(size, 4)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item())
    model.eval()
    with torch.no_grad():
        print(epoch, compiled(torch.ones(8, 4)).sum().item())
