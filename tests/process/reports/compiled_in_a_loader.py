"""A loader assigns what torch.compile returns to its own variable `self`, and drops it."""

import torch
from _loop import CURED, steps

SOURCE = "google-research/timesfm#457"
EXPECT = {
    "names": ["the object that was passed to torch.compile is called"],
    "remedy": ["Call the object that torch.compile returns"],
    "recompiles": 0,
    "graphs": 0,
    "cured": 1,
}


class Forecaster(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 4)

    def forward(self, series):
        return torch.relu(self.net(series))

    def load(self):
        if CURED:
            self.compile(backend="eager")
        else:
            self = torch.compile(self, backend="eager")


model = Forecaster()
model.load()
steps(12, lambda _: model(torch.ones(2, 4)))
