"""Masks of a spectrogram follow from a number of Python's random: a graph break."""

import random

import torch
from _loop import CURED, net, steps

SOURCE = "huggingface/transformers#24668"
EXPECT = {
    "names": ["unimplemented builtin op on tensor arguments"],
    "remedy": ["such as what follows from a number of Python's random"],
    "recompiles": 1,
    "breaks": 1,
    "graphs": 3,
    "cured": 1,
}


def drawn(size):
    width = random.randint(1, 2)
    return random.randint(0, size - width), width


@torch.compile(backend="eager")
def masked(x, start=None, width=None):
    x = net(x)
    if not CURED:
        start, width = drawn(x.size(1))
    at = torch.arange(x.size(1))
    return x * ((at < start) | (at >= start + width))


def loss_of(_):
    passed = map(torch.tensor, drawn(4)) if CURED else ()
    return masked(torch.ones(3, 4), *passed)


steps(6, loss_of)
