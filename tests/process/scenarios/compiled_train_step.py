"""Forward, backward and optimizer in one compiled function, with graph breaks between them.

What comes after the optimizer's call in it compiles in the next step.
"""

import torch
from _common import batch, finish, loss_of, mark, small

EXPECT = {
    "long": True,
    "states": "compiling warming warm",
    "breaks": 1,
    "late_steps": (1,),
    "limits": "a step ends at the optimizer's call; code after that call in the same function "
    "compiles in the next step, so warm comes one step later",
}

model = small()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


@torch.compile
def step(inputs: torch.Tensor) -> torch.Tensor:
    loss = loss_of(model, inputs)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


for _ in range(8):
    mark(step(batch()))
finish()
