"""An optimizer for each parameter, called from a hook during the backward."""

import torch
from _common import batch, finish, loss_of, mark, small

EXPECT = {"states": "compiling warming warm", "long": True}

model = small()
compiled = torch.compile(model)
optimizers = {p: torch.optim.SGD([p], lr=0.01) for p in model.parameters()}


def update(parameter: torch.Tensor) -> None:
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(update)
for _ in range(8):
    loss = loss_of(compiled, batch())
    loss.backward()
    mark(loss)
finish()
