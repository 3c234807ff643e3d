"""The loss of a detector has as many boxes as an image has objects, some of them none."""

import torch
from _loop import CURED, net, steps

SOURCE = "ultralytics/ultralytics#21975"
EXPECT = {
    "category": "shape",
    "names": [
        "(dim 0 of `images[0]['boxes']`) went from 3 to 2",
        "(dim 0 of `images[0]['boxes']`) is 1, which PyTorch compiles separately",
        "(dim 0 of `images[1]['boxes']`) is 0 or 1, which PyTorch compiles separately",
    ],
    "remedy": ["pad or drop such a batch"],
    "recompiles": 3,
    "cured": 0,
}
OBJECTS = ((3, 5), (2, 7), (1, 4), (6, 0), (4, 4), (9, 2))


@torch.compile(backend="eager")
def loss_of(images):
    predicted = net(torch.ones(2, 4))
    pairs = zip(predicted, images, strict=True)
    return sum((image["boxes"] - box).abs().sum() for box, image in pairs)


def loss(number):
    counts = (9, 9) if CURED else OBJECTS[number]
    return loss_of([{"boxes": torch.rand(count, 4)} for count in counts])


steps(6, loss)
