"""A module has a backward hook, which watches its gradients: a graph break in each call."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#133303"
EXPECT = {"remedy": ["on a parameter"], "recompiles": 0, "breaks": 1, "cured": 0}
norms = {}


class Watched(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(4, 4)
        if CURED:
            self.up.weight.register_hook(lambda gradient: norms.update(up=gradient.norm()))
        else:
            self.up.register_full_backward_hook(lambda *of: norms.update(up=of[2][0].norm()))

    def forward(self, x):
        return net(self.up(x).relu())


model = torch.compile(Watched(), backend="aot_eager")
steps(6, lambda _: model(torch.ones(2, 4)))
