"""Templates of matrix kernels are compiled and timed against each other."""

import torch
from _gpu import finish, model, train

EXPECT = {
    "states": "compiling warming warm",
    "cold": True,
    "traced": True,  # the record of what is tuned at run time does not tell when each was
    "cannot_know": {
        "guest": "which template is fastest differs from run to run, and with it the last bits",
        "trace": "templates are compiled ahead on threads, before the record of it begins",
        "coverage": "templates start before their record, and one record covers all kernels",
        "samples": "templates are compiled ahead on threads, before the record of it begins",
    },
}

net = model()
optimizer = torch.optim.AdamW(net.parameters())
train(torch.compile(net, mode="max-autotune-no-cudagraphs"), optimizer, steps=10)
finish()
