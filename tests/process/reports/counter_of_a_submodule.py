"""A submodule counts its calls: each value compiles."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#128319"
EXPECT = {
    "category": "python_value",
    "names": ["calls"],
    "remedy": ["allow_unspec_int_on_nn_module"],
    "recompiles": 6,
    "cured": 1,
    "needs": "guards_integers",
}

torch._dynamo.config.allow_unspec_int_on_nn_module = CURED


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.calls = net, 0

    def forward(self, x):
        self.calls += 1
        return self.inner(x) + self.calls


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return self.block(x)


model = torch.compile(Model(), backend="eager")
steps(7, lambda _: model(torch.ones(2, 4)))
