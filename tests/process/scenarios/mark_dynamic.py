"""The batch size is marked dynamic from the start: other sizes do not recompile."""

import torch
from _common import batch, finish, loss_of, mark, small

EXPECT = {
    "long": True,
    "states": "compiling warming warm",
    "on": {
        "2.6": {"lacks": "2.6 refuses it: the mark is violated, without the agent too"},
        "2.8": {"lacks": "2.8 refuses it: the mark is violated, without the agent too"},
    },
}

model = small()
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters())
for size in (4, 6, 7, 4, 9, 5, 12, 8):
    inputs = batch(size)
    torch._dynamo.mark_dynamic(inputs, 0)
    loss = loss_of(compiled, inputs)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    mark(loss)
finish()
