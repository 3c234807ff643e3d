"""``torch.compile`` is called, but the object that it returns never is: the run is eager."""

import torch
from _common import finish, small, train

EXPECT = {"states": "warming eager", "in_vain": True}

model = small()
compiled = torch.compile(model)
train(model, torch.optim.AdamW(model.parameters()), steps=5)
finish()
