"""``set_stance("fail_on_recompile")``: another shape raises; the training drops that batch."""

import torch
from _common import batch, finish, raises, small, train

EXPECT = {"long": True, "states": "compiling warming warm", "conditions": "uncompiled_calls"}

model = small()
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters())
train(compiled, optimizer, steps=6)
with torch.compiler.set_stance("fail_on_recompile"):
    with raises(RuntimeError):
        compiled(batch(7))
    train(compiled, optimizer, steps=3)
finish()
