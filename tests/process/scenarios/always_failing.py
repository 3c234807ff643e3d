"""``fullgraph=True`` and a graph break: each call tries to compile and fails; the training goes on.

Nothing is ever compiled, so none of the attempts is a recompile.
"""

import torch
from _common import batch, finish, loss_of, mark, small

EXPECT = {"long": True, "states": "compiling warming", "failures": 6}


def broken(inputs: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    return model(inputs)


model = small()
compiled = torch.compile(broken, fullgraph=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(6):
    try:
        loss = loss_of(compiled, batch())
    except torch._dynamo.exc.Unsupported:
        loss = loss_of(model, batch())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    mark(loss)
finish()
