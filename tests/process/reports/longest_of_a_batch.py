"""The longest length of a packed batch is an int, and static shapes compile each."""

import torch
from _loop import CURED, net, steps

SOURCE = "Dao-AILab/quack#150"
EXPECT = {
    "category": "python_value",
    "names": ["`longest` went from 490 to"],
    "remedy": ["each cost", "leave dynamic=False"],
    "recompiles": 7,
    "cured": 1,
}


class Rotary(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, longest):
        ctx.longest = longest
        return x * longest

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.longest, None


@torch.compile(backend="eager", dynamic=None if CURED else False, fullgraph=True)
def attention(x, longest):
    return Rotary.apply(net(x), longest)


steps(8, lambda number: attention(torch.ones(8, 4), 490 + number))
