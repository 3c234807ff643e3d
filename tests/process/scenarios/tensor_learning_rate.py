"""A compiled optimizer under a scheduler with the learning rate as a tensor: compiled once."""

import torch
from _common import batch, finish, loss_of, mark, small

EXPECT = {
    "long": True,
    "states": "compiling warming warm",
    "eager_frames": "torch_dynamo_resume_in_wrapper",
    "limits": "beside the agent the frame around the optimizer's step, which holds nothing to "
    "compile, runs eagerly for the hook that is called in it",
}

model = small()
optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.01), foreach=True)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
update = torch.compile(optimizer.step)
for _ in range(9):
    loss = loss_of(model, batch())
    loss.backward()
    update()
    scheduler.step()
    optimizer.zero_grad()
    mark(loss)
finish()
