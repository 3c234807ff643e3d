"""Each layer is compiled with a new backend function, although all are alike."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#168373"
EXPECT = {
    "category": "object_identity",
    "names": ["backend"],
    "remedy": [],
    "recompiles": 2,
    "cured": 0,
}


def backend():
    def compiler(graph, inputs):
        return graph.forward

    return compiler


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.up(x)


once = backend()
layers = [Layer() for _ in range(3)]
for layer in layers:
    layer.compile(backend=once if CURED else backend())


def loss_of(_):
    x = net(torch.ones(2, 4))
    for layer in layers:
        x = layer(x)
    return x


steps(6, loss_of)
