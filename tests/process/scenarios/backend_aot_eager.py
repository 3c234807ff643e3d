"""``backend="aot_eager"``: forward and backward are traced and run without Inductor."""

import torch
from _common import finish, small, train

EXPECT = {"long": True, "states": "compiling warming warm"}

model = small()
compiled = torch.compile(model, backend="aot_eager")
train(compiled, torch.optim.AdamW(model.parameters()), steps=8)
finish()
