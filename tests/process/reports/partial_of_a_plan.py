"""Each step makes a ``functools.partial`` with a switch of the first step and a float."""

import functools

import torch
from _loop import net, steps

SOURCE = "nicklashansen/tdmpc2#46"
EXPECT = {
    "category": "python_value",
    "names": ["['t0']` went from True to"],
    "remedy": [],
    "recompiles": 1,
    "cured": None,
}


def plan(x, t0, scale):
    return net(x) * scale + (1 if t0 else 0)


@torch.compile(backend="eager")
def loss_of(function, x):
    return function(x)


steps(
    6,
    lambda number: loss_of(
        functools.partial(plan, t0=number == 0, scale=1.5 + number), torch.ones(2, 4)
    ),
)
