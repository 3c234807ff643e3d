"""A module has the number of the epoch as an attribute: each epoch compiles."""

import torch
from _loop import CURED, net, optimizer

SOURCE = "Lightning-AI/pytorch-lightning#17933"
EXPECT = {
    "category": "python_value",
    "names": ["self.current_epoch"],
    "remedy": ["allow_unspec_int_on_nn_module"],
    "recompiles": 4,
    "cured": 1,
    "needs": "guards_integers",
}

torch._dynamo.config.allow_unspec_int_on_nn_module = CURED


class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.current_epoch = net, 0

    def forward(self, x):
        return self.net(x) * (1 + self.current_epoch)


model = Module()
compiled = torch.compile(model, backend="eager")
for epoch in range(5):
    model.current_epoch = epoch
    for _ in range(3):
        compiled(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
