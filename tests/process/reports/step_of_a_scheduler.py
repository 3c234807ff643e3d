"""A scheduler counts its steps from the first one on: the count was None, and is an int."""

import torch
from _loop import CURED, net, steps

SOURCE = "huggingface/diffusers#4347"
EXPECT = {
    "category": "python_value",
    "names": ["`self.index` was None and is not None now", "`self.index` went from 1 to"],
    "remedy": ["a number if it is one later"],
    "recompiles": 2,
    "cured": 1,
}


class Scheduler:
    def __init__(self):
        self.sigmas = torch.linspace(1, 0, 20)
        self.index = 0 if CURED else None

    def step(self, x):
        if self.index is None:
            self.index = 0
        x = x - self.sigmas[self.index] * net(x)
        self.index += 1
        return x


step = torch.compile(Scheduler().step, backend="eager")
steps(8, lambda _: step(torch.ones(2, 4)))
