"""A fake quantizer is on if a buffer says so: compiled code needs its value."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/ao#114"
EXPECT = {
    "names": ["it branches on a tensor's value"],
    "remedy": ["torch.where instead of an `if`"],
    "recompiles": 0,
    "graphs": 2,
    "cured": 1,
}


class Quantizer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net
        self.register_buffer("enabled", torch.tensor([1], dtype=torch.uint8))

    def forward(self, x):
        x = self.net(x)
        if CURED:
            return torch.where(self.enabled[0] == 1, self.rounded(x), x)
        if self.enabled[0] == 1:
            x = self.rounded(x)
        return x

    def rounded(self, x):
        return x + ((x * 10).round() / 10 - x).detach()


model = torch.compile(Quantizer(), backend="eager")
steps(6, lambda _: model(torch.ones(2, 4)))
