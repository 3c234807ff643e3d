"""A model is compiled in place, and its forward is called in place of the model."""

import torch
from _loop import CURED, steps

SOURCE = "huggingface/transformers#34906"
EXPECT = {
    "names": ["a method of the compiled object is called (`forward`)"],
    "remedy": ["call model(...) and not model.forward(...)"],
    "recompiles": 0,
    "graphs": 0,
    "cured": 1,
}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.net(x))


model = Model()
model.compile(backend="eager")
steps(12, lambda _: (model if CURED else model.forward)(torch.ones(2, 4)))
