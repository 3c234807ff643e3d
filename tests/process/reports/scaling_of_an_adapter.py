"""A shortcut for an adapter whose scaling is one: the scaling is a float in a dict."""

import torch
from _loop import CURED, steps

SOURCE = "huggingface/peft#2416"
EXPECT = {
    "category": "python_value",
    "names": ["scaling['...']` went from 1 to"],
    "remedy": ["pass it as a tensor"],
    "recompiles": 1,
    "cured": 0,
}


class Adapter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.base, self.lora = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4, bias=False)
        self.scaling = {"default": torch.tensor(1.0) if CURED else 1.0}

    def forward(self, x):
        scaling = self.scaling["default"]
        if not CURED and scaling == 1:
            return self.base(x) + self.lora(x)
        return self.base(x) + self.lora(x) * scaling


model = torch.nn.Sequential(Adapter(), Adapter())
compiled = torch.compile(model, backend="eager")


def loss_of(number):
    for layer in model:
        if number >= 4 and not CURED:
            layer.scaling["default"] = 1.0 + number // 4
        elif CURED:
            layer.scaling["default"].fill_(1.0 + number // 4)
    return compiled(torch.ones(2, 4))


steps(12, loss_of)
