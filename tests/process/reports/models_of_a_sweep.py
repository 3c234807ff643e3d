"""A sweep compiles a model of the same class for each trial."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#114511"
EXPECT = {
    "category": None,
    "names": ["another `Model`"],
    "remedy": ["torch._dynamo.reset()"],
    "recompiles": 2,
    "cured": 0,
}


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = torch.nn.Linear(4, width), torch.nn.Linear(width, 4)

    def forward(self, x):
        return net(self.down(self.up(x)))


for trial in range(3):
    if CURED:
        torch._dynamo.reset()
    model = torch.compile(Model(4 + trial), backend="eager")
    steps(4, lambda _, model=model: model(torch.ones(2, 4)))
