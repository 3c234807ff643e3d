"""Each step makes a mask function, which closes over a cache that has grown."""

import torch
from _loop import CURED, net, steps

SOURCE = "vllm-project/vllm#27178"
EXPECT = {
    "category": "python_value",
    "names": ["the length of `cache.blocks` in the closure of `mask`"],
    "remedy": ["Keep the number of items in it the same"],
    "recompiles": 5,
    "cured": 0,
}


class Cache:
    def __init__(self, blocks):
        self.blocks = ["block"] * blocks


def mask_of(cache):
    return lambda query, key: (query - key).abs() <= len(cache.blocks)


@torch.compile(backend="eager")
def attend(x, mask):
    place = torch.arange(x.shape[0])
    return (x @ x.T).where(mask(place[:, None], place), 0.0) @ x


def loss_of(number):
    return attend(net(torch.ones(6, 4)), mask_of(Cache(8 if CURED else number)))


steps(6, loss_of)
