"""A cache module counts what it stores: its size is an int of a submodule."""

import torch
from _loop import CURED, net, steps

SOURCE = "meta-pytorch/torchtune#1663"
EXPECT = {
    "category": "python_value",
    "names": ["size"],
    "remedy": ["allow_unspec_int_on_nn_module"],
    "recompiles": 5,
    "cured": 1,
    "needs": "guards_integers",
}

torch._dynamo.config.allow_unspec_int_on_nn_module = CURED


class Cache(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.size = 2

    def forward(self, x):
        self.size += 4
        return x[:, : self.size]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.cache = net, Cache()

    def forward(self, x):
        return self.cache(self.layer(x))


model = torch.compile(Model(), backend="eager")
steps(6, lambda _: model(torch.ones(2, 4)))
