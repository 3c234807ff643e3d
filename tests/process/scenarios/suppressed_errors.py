"""A compilation fails with ``suppress_errors``: PyTorch warns and goes on eagerly."""

import torch
from _common import finish, small, train

EXPECT = {
    "long": True,
    "states": "compiling warming warm",
    "failures": 1,
    "fallbacks": 1,
    "uncompiled_graphs": 1,
    "limits": "the trace also shows the graph whose compilation failed",
}


def broken(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> None:
    raise RuntimeError("no such backend today")


torch._dynamo.config.suppress_errors = True
model = small()
compiled = torch.compile(model, backend=broken)
train(compiled, torch.optim.SGD(model.parameters(), lr=0.01), steps=8)
finish()
