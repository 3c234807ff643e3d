"""``eval()`` and ``train()`` of a model with dropout: two graphs, and no more."""

import torch
from _loop import net, steps

SOURCE = "pytorch/pytorch#110803"
EXPECT = {"category": None, "names": ["eval()"], "remedy": [], "recompiles": 1, "cured": None}

model = torch.compile(torch.nn.Sequential(net, torch.nn.Dropout(0.1)), backend="eager")


def loss_of(number):
    model.train(number % 4 != 3)
    return model(torch.ones(2, 4))


steps(12, loss_of)
