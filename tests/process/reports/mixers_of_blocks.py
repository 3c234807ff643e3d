"""Blocks that differ in the class of their mixer break the graph: each class compiles the rest."""

import torch
from _loop import CURED

SOURCE = "pytorch/pytorch#128071"
EXPECT = {
    "names": ["first compilation of another `Block`: `self.mixer` differs", "graph_break()"],
    "remedy": ["remove torch._dynamo.graph_break()"],
    "recompiles": 4,
    "breaks": 2,
    "cured": 0,
}


class Convolution(torch.nn.Linear):
    pass


class Attention(torch.nn.Linear):
    pass


class Sliding(torch.nn.Linear):
    pass


class Block(torch.nn.Module):
    def __init__(self, mixer):
        super().__init__()
        self.mixer = mixer(4, 4)

    def forward(self, x):
        x = x.sin()
        if not CURED:
            torch._dynamo.graph_break()
        return self.mixer(x)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        mixers = (Convolution, Attention, Sliding, Convolution)
        self.blocks = torch.nn.ModuleList(Block(mixer) for mixer in mixers)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


model = Model()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
compiled = torch.compile(model, backend="eager")
for _ in range(6):
    compiled(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
