"""A scheduler lowers the learning rate of a compiled optimizer, which is a float."""

import torch
from _loop import CURED, net

SOURCE = "pytorch/pytorch#120934"
EXPECT = {
    "category": "python_value",
    "names": ["lr"],
    "remedy": ["tensor"],
    "recompiles": 1,
    "breaks": 2,
    "cured": 0,
}

rate = torch.tensor(0.01) if CURED else 0.01
adam = torch.optim.AdamW(net.parameters(), lr=rate)
schedule = torch.optim.lr_scheduler.StepLR(adam, step_size=5)


@torch.compile(backend="eager", fullgraph=False)
def update():
    adam.step()


for _ in range(9):
    net(torch.ones(2, 4)).sum().backward()
    update()
    schedule.step()
    adam.zero_grad()
