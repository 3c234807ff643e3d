"""Two compiled models: the second is first called long after the first is warm."""

import torch
from _common import finish, small, train

EXPECT = {
    "long": True,
    "env": {"WARMWATCH_FULL_REASONS": "1"},
    "states": "compiling warming warm recompiling warm",
    "categories": "new_instance",
    "unseen_steps": 1,
    "late_steps": (0, 1),
    "limits": "the first call of the second optimizer might belong to a step of the first; it is "
    "not counted, so warm comes one step later",
}

first, second = small(), small(6)
one = torch.compile(first)
other = torch.compile(torch.nn.Sequential(torch.nn.Linear(8, 6), second))
# both live on: one made where the other was freed could not be distinguished from it
optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in (first, second)]
train(one, optimizers[0], steps=6)
train(other, optimizers[1], steps=6)
finish()
