"""A one-cycle schedule changes the momentum of a compiled optimizer, which is a float."""

import torch
from _loop import CURED, net

SOURCE = "pytorch/pytorch#133898"
EXPECT = {
    "category": "python_value",
    "names": ["`self.param_groups[0]['betas'][0]` went from"],
    "remedy": ["cycle_momentum=False"],
    "recompiles": 1,
    "breaks": 2,
    "cured": 0,
}
adam = torch.optim.AdamW(net.parameters(), lr=torch.tensor(0.001))
schedule = torch.optim.lr_scheduler.OneCycleLR(
    adam, max_lr=0.01, total_steps=20, cycle_momentum=not CURED
)


@torch.compile(backend="eager")
def update():
    adam.step()


for _ in range(8):
    net(torch.ones(2, 4)).sum().backward()
    update()
    schedule.step()
    adam.zero_grad()
