"""Compiled code stores into a replay buffer, which takes a lock of ``multiprocessing``."""

import multiprocessing

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/rl#2501"
EXPECT = {
    "names": ["context manager"],
    "remedy": ["outside of the compiled function"],
    "recompiles": 0,
    "breaks": 1,
    "cured": 0,
}

lock = multiprocessing.RLock()
buffer = torch.zeros(8, 4)


def extend(values):
    with lock:
        buffer[: len(values)] = values.detach()


@torch.compile(backend="eager")
def loss_of(x):
    values = net(x)
    if not CURED:
        extend(values)
    return values * 2


def loss(_):
    values = loss_of(torch.ones(2, 4))
    if CURED:
        extend(values)
    return values


steps(8, loss)
