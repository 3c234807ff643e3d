"""One function serves ten layers, which it selects by their number."""

import torch
from _loop import CURED, LIMIT, steps

SOURCE = "huggingface/lerobot#3610"
EXPECT = {
    "names": ["`number` went from 1 to"],
    "remedy": ["_limit, for example to 16"],
    "recompiles": 8,
    "graphs": 8,
    "cured": 10,
}
if CURED:
    setattr(torch._dynamo.config, LIMIT, 16)
layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(10))


@torch.compile(backend="eager")
def layer_of(number, x):
    return x + torch.relu(layers[number](x))


def loss_of(_number):
    x = torch.ones(2, 4)
    for number in range(10):
        x = layer_of(number, x)
    return x


steps(4, loss_of)
