"""Compiled code asks whether a number is a key of a dict: its length and the number change."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#143670"
EXPECT = {
    "category": "python_value",
    "names": ["the length of `names` went from 1 to", "`number` went from 4 to"],
    "remedy": ["Keep the number of items", "keep it out of the compiled function"],
    "recompiles": 5,
    "cured": 1,
}


@torch.compile(backend="eager")
def loss_of(x, names, number):
    x = net(x)
    return x + 1 if number in names else x + 2


@torch.compile(backend="eager")
def outside(x, is_known):
    x = net(x)
    return x + 1 if is_known else x + 2


def either(step):
    names, number = {key: str(key) for key in range(1 + step)}, 3 + step % 3
    if CURED:
        return outside(torch.ones(2, 4), number in names)
    return loss_of(torch.ones(2, 4), names, number)


steps(6, either)
