"""Twelve modules of one class differ in a string: their first compilations fill the cache."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#171593"
EXPECT = {
    "category": None,
    "names": ["key"],
    "remedy": ["recompile_limit", "16"],
    "recompiles": 8,
    "graphs": 8,
    "cured": 12,
}

if CURED:
    torch._dynamo.config.recompile_limit = 16


class Scaled(torch.nn.Module):
    def __init__(self, key):
        super().__init__()
        self.key = key

    def forward(self, inputs):
        return net(inputs[self.key])


models = [torch.compile(Scaled(f"layer{number}"), backend="eager") for number in range(12)]
inputs = {f"layer{number}": torch.ones(2, 4) for number in range(12)}
steps(6, lambda _: sum(model(inputs) for model in models))
