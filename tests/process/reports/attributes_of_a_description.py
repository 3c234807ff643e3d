"""A class looks up its attributes itself: nothing of what uses them is captured."""

import torch
from _loop import CURED, net, steps

SOURCE = "vmoens/mujoco-torch#1"
EXPECT = {
    "names": ["calls `__getattribute__`"],
    "remedy": ["Write super().__getattribute__(name)"],
    "recompiles": 0,
    "graphs": 0,
    "cured": 1,
}


class Description:
    def __init__(self):
        self.gain = 2.0

    def __getattribute__(self, name):
        if CURED:
            return super().__getattribute__(name)
        return object.__getattribute__(self, name)


description = Description()


@torch.compile(backend="eager")
def advanced(x):
    return net(x) * description.gain


steps(6, lambda _: advanced(torch.ones(2, 4)))
