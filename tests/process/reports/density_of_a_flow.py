"""A flow is compiled, and its training calls another method than forward."""

import torch
from _loop import CURED, steps

SOURCE = "pytorch/pytorch#141616"
EXPECT = {
    "names": ["a method of the compiled object is called (`log_prob`)"],
    "remedy": ["model.log_prob = torch.compile(model.log_prob)"],
    "recompiles": 0,
    "graphs": 0,
    "cured": 1,
}


class Flow(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 4)

    def forward(self, noise):
        return noise * torch.exp(self.net(noise))

    def log_prob(self, x):
        return -(x - self.net(x)).square().sum(-1)


model = Flow()
compiled = torch.compile(model, backend="eager")
if CURED:
    model.log_prob = torch.compile(model.log_prob, backend="eager")
steps(12, lambda _: -compiled.log_prob(torch.ones(2, 4)))
