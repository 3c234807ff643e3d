"""A second run with the compile caches of the first: loading from them is compile activity too."""

import torch
from _common import finish, small, train

EXPECT = {"states": "compiling warming warm", "warm_cache": True, "long": True}

model = small()
train(torch.compile(model), torch.optim.AdamW(model.parameters()), steps=8)
finish()
