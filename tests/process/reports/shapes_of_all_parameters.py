"""A function for each parameter, with static shapes: the same twelve in every step."""

import torch
from _loop import CURED, LIMIT

SOURCE = "HomebrewML/HeavyBall#16"
EXPECT = {
    "category": None,
    "names": [],
    "remedy": ["recompile_limit", "12"],
    "recompiles": 8,
    "graphs": 8,
    "cured": 12,
    "versions": {"2.6": {"remedy": ["cache_size_limit", "12"], "recompiles": 7}},
}

if CURED:
    setattr(torch._dynamo.config, LIMIT, 16)


@torch.compile(dynamic=False, backend="eager")
def update(parameter, gradient):
    parameter.sub_(gradient.sign() * 1e-3)


layers = torch.nn.Sequential(*(torch.nn.Linear(4 + n, 5 + n) for n in range(6)))


class Sign(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            update(parameter, parameter.grad)


sign = Sign(layers.parameters())
for _ in range(8):
    layers(torch.ones(2, 4)).sum().backward()
    sign.step()
    sign.zero_grad()
