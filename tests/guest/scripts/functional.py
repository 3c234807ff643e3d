"""torch.func: grad, vmap, jvp and functional_call, compiled."""

import torch
from torch.func import functional_call, grad, jacrev, jvp, vmap

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
parameters = {name: value.detach() for name, value in model.named_parameters()}


def loss(parameters, x):
    return functional_call(model, parameters, (x,)).square().mean()


per_sample = torch.compile(vmap(grad(loss), in_dims=(None, 0)), backend="eager")
whole = torch.compile(grad(loss), backend="aot_eager")
for _ in range(4):
    x = torch.randn(8, 4)
    print({name: value.norm().item() for name, value in per_sample(parameters, x).items()})
    parameters = {
        name: value - 0.1 * gradient
        for (name, value), gradient in zip(parameters.items(), whole(parameters, x).values())
    }
print(jacrev(lambda x: x.square().sum())(torch.ones(3)))
print(jvp(torch.sin, (torch.ones(2),), (torch.ones(2),)))
