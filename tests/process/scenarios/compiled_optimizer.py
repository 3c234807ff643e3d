"""A compiled optimizer with an eager model."""

import torch
from _common import batch, finish, loss_of, mark, small

EXPECT = {
    "long": True,
    "states": "compiling warming warm",
    "breaks": 1,
    "eager_frames": "torch_dynamo_resume_in_wrapper",
    "limits": "with the agent, the frame around the optimizer's step runs eagerly for the hook "
    "that is called in it; it has nothing to compile",
}

model = small()
optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.01), capturable=False)
update = torch.compile(optimizer.step)
for _ in range(8):
    loss = loss_of(model, batch())
    loss.backward()
    update()
    optimizer.zero_grad()
    mark(loss)
finish()
