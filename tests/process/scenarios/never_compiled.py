"""A training that compiles nothing: eager, and nothing to wait for."""

import torch
from _common import finish, small, train

EXPECT = {"states": "warming eager"}

model = small()
train(model, torch.optim.AdamW(model.parameters()), steps=8)
finish()
