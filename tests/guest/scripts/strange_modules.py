"""Modules that answer every attribute, hooks of all kinds, lazy layers and parametrizations."""
# core
# steps: 4

import torch
from torch import nn


class Everything(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner, self.asked = inner, []

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "inner" or name.startswith("__"):
                raise
            self.__dict__["asked"].append(name)
            return getattr(super().__getattr__("inner"), name)

    def __setattr__(self, name, value):
        super().__setattr__(name, value)

    def forward(self, x):
        return self.inner(x)


class Odd(nn.Module):
    """Its flag is a property, and its parameters come from a generator that counts."""

    def __init__(self):
        super().__init__()
        self.layer, self.counted = nn.Linear(4, 4), 0

    training = property(lambda self: self.__dict__.get("flag", True), lambda self, x: None)

    def parameters(self, recurse=True):
        self.counted += 1
        yield from super().parameters(recurse)

    def forward(self, x):
        return self.layer(x)


class Asked:
    """No module: compiled itself, and an argument with a name of PyTorch's wrappers."""

    def __getattr__(self, name):
        calls.append(name)
        raise AttributeError(name)

    def __call__(self, x):
        return x + 1


torch.manual_seed(0)
calls = []
model = Everything(nn.Sequential(Odd(), nn.LazyLinear(3), nn.Linear(3, 1)))
nn.utils.parametrizations.weight_norm(model.inner[2])
model.register_forward_pre_hook(lambda module, args: calls.append("pre"))
model.register_forward_hook(lambda module, args, out: calls.append("forward"))
model.register_full_backward_hook(lambda module, inner, outer: calls.append("backward"))
model.register_state_dict_post_hook(lambda module, state, prefix, local: calls.append("state"))
model(torch.ones(2, 4))
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    loss = compiled(torch.randn(8, 4)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    model.eval()
    model.state_dict()
    model.train()
    print(loss.item())
for number in (1, 2):
    torch.compile(lambda fn, x: x + number, backend="eager")(Asked(), torch.ones(2))
    torch.compile(Asked(), backend="eager")(torch.ones(2 + number))
print(calls, model.asked, model.inner[0].counted)
