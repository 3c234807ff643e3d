"""A reference pass disables the adapters by an attribute of the model."""

import torch
from _loop import net, optimizer

SOURCE = "pytorch/pytorch#124717"
EXPECT = {
    "category": "python_value",
    "names": ["self.disabled"],
    "remedy": [],
    "recompiles": 1,
}


class Adapted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.disabled = net, False

    def forward(self, x):
        return self.net(x) if self.disabled else self.net(x) + x


model = Adapted()
compiled = torch.compile(model, backend="eager")
for _ in range(8):
    compiled(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    model.disabled = True
    compiled(torch.ones(2, 4))
    model.disabled = False
