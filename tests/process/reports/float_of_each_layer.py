"""One function serves layers with different norms, each of them a float."""

import torch
from _loop import CURED, net, steps

SOURCE = "modula-systems/modula#1"
EXPECT = {
    "category": "python_value",
    "names": ["target_norm"],
    "remedy": [],
    "recompiles": 3,
    "cured": 0,
    "versions": {"2.6": {"recompiles": 1}},
}


@torch.compile(backend="eager", dynamic=False)
def normalize(x, target_norm):
    return x / x.norm() * target_norm


def loss_of(_):
    x = net(torch.ones(2, 4))
    for norm in (0.5, 1.5, 2.5, 3.5):
        x = normalize(x, torch.tensor(norm) if CURED else norm)
    return x


steps(6, loss_of)
