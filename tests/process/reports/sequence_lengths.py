"""Each batch has another length; with static shapes each one compiles."""

import torch
from _loop import CURED, net, steps

SOURCE = "huggingface/trl#3611"
EXPECT = {
    "category": "shape",
    "names": ["input_ids"],
    "remedy": ["dynamic"],
    "recompiles": 5,
    "cured": 1,
}


@torch.compile(backend="eager", dynamic=None if CURED else False)
def loss_of(input_ids):
    return net(input_ids)


steps(6, lambda number: loss_of(torch.ones(90 + 2 * number, 4)))
