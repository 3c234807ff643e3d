"""An optimizer calls a function with all parameters of one shape: ten shapes, one graph."""

import torch
from _loop import CURED, LIMIT

SOURCE = "microsoft/dion#23"
EXPECT = {
    "category": "shape",
    "names": ["`grads[0]`: dim 0 went from 5 to 6, as that of the parameter `params[0]`"],
    "remedy": [
        "_limit to 10 or more",
        "set torch._dynamo.config.force_parameter_static_shapes = False",
    ],
    "recompiles": 8,
    "graphs": 8,
    "cured": 10,
}
if CURED:
    setattr(torch._dynamo.config, LIMIT, 10)


@torch.compile(backend="eager")
def update(params, grads):
    torch._foreach_add_(params, grads, alpha=-0.01)


class Own(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {})

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            update([p], [p.grad])


layers = [torch.nn.Linear(width, width + 1, bias=False) for width in range(4, 14)]
model = torch.nn.Sequential(*layers)
own = Own(model.parameters())
for _ in range(4):
    model(torch.ones(2, 4)).sum().backward()
    own.step()
    own.zero_grad()
