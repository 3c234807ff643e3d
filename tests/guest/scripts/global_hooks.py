"""Global optimizer hooks of the training, registered before and after others, and removed."""
# steps: 6

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

torch.manual_seed(0)
calls = []
before = register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: calls.append("pre"))
after = register_optimizer_step_post_hook(lambda optimizer, args, kwargs: calls.append("post"))
model = torch.nn.Linear(4, 1)
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(6):
    compiled(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if number == 3:
        before.remove()
        after.remove()
print(calls, after.id >= 0)
