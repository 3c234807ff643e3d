"""Exceptions in forward, backward, step, hooks and the compiler itself, all caught."""
# core

import traceback

import optimizers
import torch


class Failing(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        raise ValueError("in step")


def show(name, function):
    try:
        function()
    except Exception as error:
        print(name, type(error).__name__, str(error).splitlines()[0])
        frames = traceback.extract_tb(error.__traceback__)
        print([frame.name for frame in frames if "torch" not in frame.filename])
        print([frame.name for frame in frames])


def fails(graph, inputs):
    raise RuntimeError("in the backend")


def hook(module, args, output):
    raise KeyError("in a hook")


class Broken(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 2

    @staticmethod
    def backward(context, gradient):
        raise ZeroDivisionError("in backward")


model = optimizers.model()
optimizer = Failing(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
for _ in range(3):
    show("step", optimizer.step)
    show("backend", lambda: torch.compile(model, backend=fails)(torch.ones(2, 4)))
    show("shape", lambda: torch.compile(model, backend="eager")(torch.ones(2, 5)))
    show("backward", lambda: Broken.apply(torch.ones(2, requires_grad=True)).sum().backward())
    show("compiled step", torch.compile(optimizer.step, backend="eager"))
handle = model[0].register_forward_hook(hook)
show("hook", lambda: model(torch.ones(2, 4)))
handle.remove()
show("state", lambda: optimizer.load_state_dict({"state": {}, "param_groups": []}))
show("no parameters", lambda: torch.optim.SGD([], lr=0.1))
