"""A scheduler is made after the first compiled step: it sets an attribute of the optimizer."""

import torch
from _loop import CURED, net

SOURCE = "pytorch/pytorch#130467"
EXPECT = {
    "category": "module_state",
    "names": ["step", "adam"],
    "remedy": ["before the first compiled call"],
    "recompiles": 1,
    "breaks": 3,
    "cured": 0,
    "versions": {
        "2.6": {
            "category": "python_value",
            "names": ["self.param_groups[0]"],
            "remedy": [],
            "breaks": 2,
        }
    },
}

adam = torch.optim.AdamW(net.parameters(), lr=torch.tensor(0.01))
update = torch.compile(lambda: adam.step(), backend="eager")


def step():
    net(torch.ones(2, 4)).sum().backward()
    update()
    adam.zero_grad()


if not CURED:
    step()
schedule = torch.optim.lr_scheduler.StepLR(adam, step_size=5)
for _ in range(8):
    step()
    schedule.step()
