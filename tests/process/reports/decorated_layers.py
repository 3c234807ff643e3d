"""A decorator of a type checker wraps the forward of ten classes: all of them share one code."""

import functools

import torch
from _loop import CURED, LIMIT, net, steps

SOURCE = "patrick-kidger/jaxtyping#384"
EXPECT = {
    "category": "new_instance",
    "names": ["another function, which the same wrapper calls"],
    "remedy": ["recompile_limit", "16"],
    "recompiles": 8,
    "graphs": 8,
    "cured": 10,
}
if CURED:
    setattr(torch._dynamo.config, LIMIT, 16)


def typed(fn):
    @functools.wraps(fn)
    def wrapped(*args):
        return fn(*args)

    return wrapped


def made(number):
    forward = eval(f"lambda self, x: x * {number}.5")
    return type(f"Layer{number}", (torch.nn.Module,), {"forward": typed(forward)})()


layers = [torch.compile(made(number), backend="eager") for number in range(10)]
steps(4, lambda _: functools.reduce(lambda x, layer: layer(x), layers, net(torch.ones(2, 4))))
