"""A checkpoint is saved, and loaded into the same model during the run: no recompile."""

import io

import torch
from _common import finish, small, train

EXPECT = {"long": True, "states": "compiling warming warm"}

model = small()
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters())
train(compiled, optimizer, steps=5)
file = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
file.seek(0)
saved = torch.load(file)
model.load_state_dict(saved["model"])
optimizer.load_state_dict(saved["optimizer"])
train(compiled, optimizer, steps=5)
finish()
