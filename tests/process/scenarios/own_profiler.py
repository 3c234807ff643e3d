"""The user's ``torch.profiler`` around the steps that compile."""

import torch
from _common import finish, note, small, train

EXPECT = {"long": True, "states": "compiling warming warm"}

model = small()
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters())
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
    train(compiled, optimizer, steps=2)
note(torch.tensor(sum(event.count for event in profile.key_averages() if "dynamo" in event.key)))
train(compiled, optimizer, steps=6)
finish()
