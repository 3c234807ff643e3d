"""A layer gets its adapter after the first steps: the attribute was None, and is a submodule."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#120958"
EXPECT = {
    "category": "module_state",
    "names": ["adapter", "is a module"],
    "remedy": ["its last value", "before the first compiled call"],
    "recompiles": 1,
    "cured": 0,
}


class Adapted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.base, self.adapter = net, None

    def forward(self, x):
        y = self.base(x)
        return y if self.adapter is None else y + self.adapter(x)


adapted = Adapted()
model = torch.compile(adapted, backend="eager")


def loss_of(number):
    if number == (0 if CURED else 4):
        adapted.adapter = torch.nn.Linear(4, 4)
    return model(torch.ones(2, 4))


steps(8, loss_of)
