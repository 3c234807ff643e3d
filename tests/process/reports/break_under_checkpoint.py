"""A graph break within a checkpointed part leaves the whole forward to Python."""

import torch
from _loop import CURED, net, steps
from torch.utils.checkpoint import checkpoint

SOURCE = "pytorch/pytorch#139989"
EXPECT = {
    "names": ["`print`"],
    "remedy": ["torch._dynamo.config.reorderable_logging_functions"],
    "recompiles": 0,
    "breaks": 1,
    "graphs": 0,
    "cured": 1,
}
if CURED:
    torch._dynamo.config.reorderable_logging_functions.add(print)


class Layer(torch.nn.Module):
    def attend(self, x):
        print(end="")
        return torch.softmax(net(x), -1)

    def forward(self, x):
        return checkpoint(self.attend, x, use_reentrant=False)


compiled = torch.compile(Layer(), backend="eager")
steps(4, lambda _: compiled(torch.ones(2, 4)))
