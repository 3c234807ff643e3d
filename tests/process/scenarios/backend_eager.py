"""``backend="eager"``: only Dynamo works, and that is compile activity too."""

import torch
from _common import finish, small, train

EXPECT = {"long": True, "states": "compiling warming warm"}

model = small()
compiled = torch.compile(model, backend="eager")
train(compiled, torch.optim.AdamW(model.parameters()), steps=8)
finish()
