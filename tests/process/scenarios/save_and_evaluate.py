"""Between steps it saves to a slow disk and evaluates the uncompiled model: no compilation."""

import io
import time

import torch
from _common import batch, finish, note, pauses, small, train

EXPECT = {"long": True, "states": "compiling warming warm"}


class Disk(io.BytesIO):
    """One that takes its time."""

    def write(self, data: bytes) -> int:  # type: ignore[override]
        if not self.tell():
            time.sleep(0.3)
        return super().write(data)


model = small()
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    train(compiled, optimizer, steps=5)
    with pauses():
        torch.save(model.state_dict(), Disk())
    with torch.no_grad():
        for _ in range(20):
            note(model(batch()))
train(compiled, optimizer, steps=2)
finish()
