"""A static model: one forward and one backward compile, and nothing after them."""

import torch
from _common import finish, small, train

EXPECT = {"states": "compiling warming warm", "cold": True}

model = small()
train(torch.compile(model), torch.optim.AdamW(model.parameters()), steps=8)
finish()
