"""A wrapper is compiled around ten modules of as many classes: all share its code."""

import torch
from _loop import CURED, LIMIT, steps

SOURCE = "pytorch/pytorch#167504"
EXPECT = {
    "category": "new_instance",
    "names": ["first compilation of another `Wrapper`: `self.inner` differs"],
    "remedy": ["_limit, for example to 16"],
    "recompiles": 8,
    "graphs": 8,
    "cured": 10,
}
if CURED:
    setattr(torch._dynamo.config, LIMIT, 16)


class Wrapper(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


classes = [type(f"Head{number}", (torch.nn.Linear,), {}) for number in range(10)]
heads = [torch.compile(Wrapper(each(4, 4)), backend="eager") for each in classes]


def passed(_):
    x = torch.ones(2, 4)
    for head in heads:
        x = head(x)
    return x


steps(6, passed)
