"""``fullgraph=True``: one model without a graph break, and one whose graph break raises."""

import torch
from _common import batch, finish, raises, small, train

EXPECT = {"long": True, "states": "compiling warming warm", "failures": 1}


@torch.compile(fullgraph=True)
def broken(x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    return x + 1


model = small()
with raises(torch._dynamo.exc.Unsupported):
    broken(batch())
compiled = torch.compile(model, fullgraph=True)
train(compiled, torch.optim.AdamW(model.parameters()), steps=8)
finish()
