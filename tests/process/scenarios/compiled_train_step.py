"""Forward, backward and optimizer in one compiled function, which breaks where they meet.

The rest of it, behind the optimizer's call, is compiled after that call: in the next step.
"""

import torch
from _common import batch, finish, loss_of, mark, small

EXPECT = {
    "long": True,
    "states": "compiling warming warm",
    "breaks": 1,
    "late_steps": (1,),
    "eager_frames": "torch_dynamo_resume_in_wrapper",
    "limits": "a step ends at the optimizer's call, and what is compiled behind it, in the same "
    "function, is in the next step: warm comes one step later; beside the agent the frame around "
    "the optimizer's step, which holds nothing to compile, runs eagerly for the hook in it",
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
