"""``torch.compile`` is called, and the object that it gave back never is: eager, unlike meant."""

import torch
from _common import finish, small, train

EXPECT = {"states": "warming eager", "in_vain": True}

model = small()
compiled = torch.compile(model)
train(model, torch.optim.AdamW(model.parameters()), steps=5)
finish()
