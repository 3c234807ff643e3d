"""A list has the number of objects of each image, up to which the loss takes rows."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#123894"
EXPECT = {
    "category": "python_value",
    "names": ["counts[0]"],
    "remedy": ["sizes 0 and 1 separately", "keep it above 1"],
    "recompiles": 2,
    "cured": 1,
}


@torch.compile(backend="aot_eager")
def loss_of(x, counts):
    return sum(image[:count].sum() / count for image, count in zip(net(x), counts, strict=True))


COUNTS = [(2, 3), (1, 3), (4, 3), (3, 3), (2, 3), (4, 3)]
steps(
    6,
    lambda number: loss_of(torch.ones(2, 4, 4), [max(each, 1 + CURED) for each in COUNTS[number]]),
)
