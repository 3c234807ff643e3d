"""Compiled code adds a key to its argument: the second call has other keys."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#175858"
EXPECT = {"category": None, "names": ["state"], "remedy": [], "recompiles": 1, "cured": 0}


@torch.compile(backend="eager")
def add_loss(state):
    state["loss"] = net(state["x"])
    return state["loss"]


state = {"x": torch.ones(2, 4)}
if CURED:
    state["loss"] = torch.ones(2, 4)


def loss_of(_):
    loss = add_loss(state)
    state["loss"] = loss.detach()
    return loss


steps(6, loss_of)
