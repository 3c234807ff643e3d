"""A library logs in the forward: a graph break in each call."""

import logging

import torch
from _loop import CURED, net, steps

SOURCE = "tenstorrent/tt-torch#852"
EXPECT = {
    "category": None,
    "names": [],
    "remedy": ["ignore_logg"],
    "recompiles": 0,
    "breaks": 1,
    "cured": 0,
}

log = logging.getLogger("model")
log.setLevel(logging.ERROR)
if CURED:
    for name in ("ignore_logging_functions", "ignore_logger_methods"):
        if hasattr(torch._dynamo.config, name):
            getattr(torch._dynamo.config, name).update({log.warning, logging.Logger.warning})


@torch.compile(backend="eager")
def loss_of(x):
    y = net(x)
    log.warning("a warning")
    return y.relu()


steps(6, lambda _: loss_of(torch.ones(2, 4)))
