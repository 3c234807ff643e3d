"""``model.eval()`` of a model with dropout: the flag ``training`` needs another graph."""

import torch
from _common import batch, finish, note, small, train

EXPECT = {
    "long": True,
    "states": "compiling warming warm recompiling warm",
    "categories": "module_state",
}

model = torch.nn.Sequential(small(), torch.nn.Dropout(0.5))
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters())
train(compiled, optimizer, steps=6)
model.eval()
note(compiled(batch()))
model.train()
train(compiled, optimizer, steps=6)
finish()
