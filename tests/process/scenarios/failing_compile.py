"""A compilation fails: the training catches the exception and goes on without the compiler."""

import torch
from _common import batch, finish, raises, small, train

EXPECT = {
    "states": "compiling warming warm",
    "failures": 1,
    "uncompiled_graphs": 1,
    "limits": "the trace also shows the graph whose compilation failed",
}


def broken(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> None:
    raise RuntimeError("no such backend today")


model = small()
with raises(torch._dynamo.exc.BackendCompilerFailed):
    torch.compile(model, backend=broken)(batch())
train(model, torch.optim.SGD(model.parameters(), lr=0.01), steps=8)
finish()
