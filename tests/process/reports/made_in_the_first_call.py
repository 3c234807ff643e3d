"""A layer makes its function in the first call: the attribute was None, and is a function."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/torchtitan#2823"
EXPECT = {
    "category": "python_value",
    "names": ["self.mapped"],
    "remedy": ["before the first compiled call"],
    "recompiles": 1,
    "cured": 0,
}


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net
        self.mapped = torch.sin if CURED else None

    def forward(self, x):
        if self.mapped is None:
            self.mapped = torch.sin
        return self.mapped(self.net(x))


model = torch.compile(Attention(), backend="eager")

steps(8, lambda _: model(torch.ones(2, 4)))
