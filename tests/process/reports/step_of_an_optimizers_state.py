"""A compiled function of an optimizer counts its steps as an int, with static shapes."""

import torch
from _loop import CURED

SOURCE = "Koratahiu/Advanced_Optimizers#6"
EXPECT = {
    "category": "python_value",
    "names": ["state['step']"],
    "remedy": ["keep it out of the compiled function"],
    "recompiles": 7,
    "cured": 0,
}


class Own(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {"lr": 0.01})
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["step"] = 0

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                update(p, self.state[p])
                if CURED:
                    self.state[p]["step"] += 1


@torch.compile(backend="eager", dynamic=False)
def update(p, state):
    p.add_(p.grad, alpha=-0.01)
    if not CURED:
        state["step"] += 1


small = torch.nn.Linear(4, 4, bias=False)
own = Own(small.parameters())
for _ in range(8):
    small(torch.ones(2, 4)).sum().backward()
    own.step()
    own.zero_grad()
