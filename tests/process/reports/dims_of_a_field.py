"""One transform is called with fields of two, three and four dims."""

import torch
from _loop import CURED, net, steps

SOURCE = "NVIDIA/torch-harmonics#209"
EXPECT = {
    "category": "shape",
    "names": ["`field`: number of dims went from 2 to 3", "went from 3 to 4"],
    "recompiles": 2,
    "cured": 0,
}
SHAPES = [(6, 4), (3, 2, 4), (3, 2, 1, 4)]


@torch.compile(backend="eager")
def transformed(field):
    assert field.shape[-1] == 4
    return net(field).abs()


def loss_of(number):
    field = torch.ones(SHAPES[number % 3])
    return transformed(field.flatten(0, -2) if CURED else field)


steps(6, loss_of)
