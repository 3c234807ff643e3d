"""A library warns of a deprecated argument within compiled code."""

import warnings

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/torchtitan#2684"
EXPECT = {
    "names": ["warn"],
    "remedy": ["ignore_logging_functions"],
    "recompiles": 0,
    "breaks": 1,
    "cured": 0,
    "versions": {"2.6": {"remedy": ["Take the warning out"]}},
}

warnings.simplefilter("ignore")
IGNORED = getattr(torch._dynamo.config, "ignore_logging_functions", None)  # not in 2.6
if CURED and IGNORED is not None:
    IGNORED.add(warnings.warn)


@torch.compile(backend="eager")
def loss_of(x):
    values = net(x)
    if not CURED or IGNORED is not None:
        warnings.warn("use return_aux", DeprecationWarning, stacklevel=2)
    return values * 2


steps(8, lambda _: loss_of(torch.ones(2, 4)))
