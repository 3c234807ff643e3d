"""A function is compiled for each parameter in each step, with a learning rate that is a float."""

import torch
from _loop import CURED, LIMIT

SOURCE = "pytorch/ao#2500"
EXPECT = {
    "names": ["`rate` went from 0.5 to"],
    "remedy": ["pass the number that changes (a learning rate, a step count) as a tensor"],
    "recompiles": 23,
    "cured": 2,
}
setattr(torch._dynamo.config, LIMIT, 64)


def update(p, grad, rate):
    p.sub_(rate * grad)


class Own(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {"lr": torch.tensor(0.5) if CURED else 0.5})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                compiled = torch.compile(update, backend="eager", fullgraph=True, dynamic=False)
                compiled(p.detach(), p.grad, group["lr"])


model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2, bias=False))
own = Own(model.parameters())
for _ in range(8):
    model(torch.ones(2, 4)).sum().backward()
    own.step()
    own.zero_grad(set_to_none=False)
    own.param_groups[0]["lr"] *= 0.5
