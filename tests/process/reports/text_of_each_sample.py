"""A batch has a text that compiled code reads, and each batch has another."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#100455"
EXPECT = {
    "category": "python_value",
    "names": ["batch", "train.py:"],
    "remedy": ["branch on it before the call"],
    "recompiles": 4,
    "cured": 0,
}


@torch.compile(backend="eager")
def loss_of(batch, sign=1):
    if batch.get("text", "").endswith("?"):
        sign = -1
    return net(batch["x"]) * sign


def loss(number):
    x, text = torch.ones(2, 4), f"text {number}"
    if CURED:
        return loss_of({"x": x}, -1 if text.endswith("?") else 1)
    return loss_of({"x": x, "text": text})


steps(5, loss)
