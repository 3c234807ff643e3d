"""A changing batch size: the second size makes the batch dynamic, others cost nothing."""

import torch
from _common import finish, small, train

EXPECT = {
    "long": True,
    "states": "compiling warming warm recompiling warm",
    "categories": "shape",
    "on": {  # each size compiles, without the agent too
        "2.6": {
            "states": "compiling warming warm recompiling",
            "categories": "shape shape shape shape shape",
        },
        "2.8": {
            "states": "compiling warming warm recompiling",
            "categories": "shape shape shape shape shape",
        },
    },
}

model = small()
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters())
train(compiled, optimizer, steps=5)
for size in (6, 6, 7, 9, 5, 12):
    train(compiled, optimizer, steps=1, size=size)
finish()
