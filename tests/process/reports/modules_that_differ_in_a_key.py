"""Twelve modules of one class differ in a string: their first compilations fill the cache."""

import torch
from _loop import CURED, LIMIT, net, steps

SOURCE = "pytorch/pytorch#171593"
EXPECT = {
    "category": None,
    "names": ["key"],
    "remedy": ["recompile_limit", "16"],
    "recompiles": 8,
    "graphs": 8,
    "cured": 12,
    "versions": {"2.6": {"remedy": ["cache_size_limit", "16"], "recompiles": 7}},
}

if CURED:
    setattr(torch._dynamo.config, LIMIT, 16)


class Scaled(torch.nn.Module):
    def __init__(self, key):
        super().__init__()
        self.key = key

    def forward(self, inputs):
        return net(inputs[self.key])


models = [torch.compile(Scaled(f"layer{number}"), backend="eager") for number in range(12)]
inputs = {f"layer{number}": torch.ones(2, 4) for number in range(12)}
steps(6, lambda _: sum(model(inputs) for model in models))
