"""Parameters are frozen during the run and unfrozen again: only the freezing recompiles."""

import torch
from _common import finish, small, train

EXPECT = {
    "long": True,
    "states": "compiling warming warm recompiling warm",
    "categories": "requires_grad",
    "on": {  # parameters are not guarded there
        "2.6": {"states": "compiling warming warm", "categories": ""},
        "2.8": {"states": "compiling warming warm", "categories": ""},
        "2.11": {"states": "compiling warming warm", "categories": ""},
    },
}

model = small()
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
train(compiled, optimizer, steps=6)
model[0].requires_grad_(False)
train(compiled, optimizer, steps=6)
model[0].requires_grad_(True)
train(compiled, optimizer, steps=5)
finish()
