"""Optimizers in the backward: a hook of each parameter steps its own optimizer."""
# steps: 5

import optimizers
import torch

model = optimizers.model()
compiled = torch.compile(model, backend="aot_eager")
steppers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}


def step(parameter):
    steppers[parameter].step()
    steppers[parameter].zero_grad()


for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(step)
for _ in range(5):
    loss = compiled(torch.randn(8, 4)).square().mean()
    loss.backward()
    print(loss.item())
