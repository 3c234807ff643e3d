"""The loss gets a network as its argument: those of an ensemble differ in their depth."""

import torch
from _loop import net, steps

SOURCE = "pytorch/pytorch#134954"
EXPECT = {
    "category": "new_instance",
    "names": ["first compilation of another `Network`: `network.layers` differs"],
    "remedy": [],
    "recompiles": 2,
}


class Network(torch.nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layers = torch.nn.ModuleList([net] * depth)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


networks = [Network(depth) for depth in (1, 2, 3)]


@torch.compile(backend="eager")
def loss(network, x):
    return network(x).square().mean()


def loss_of(_number):
    return sum(loss(network, torch.ones(2, 4)) for network in networks)


steps(6, loss_of)
