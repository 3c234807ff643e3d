"""``fx_compile_mode`` async: another process compiles, and its code is swapped in later."""

import gc
import time

import torch
from _common import finish, small, train
from torch._inductor.compile_fx_async import _AsyncFxCompile, _AsyncOutputCode

EXPECT = {
    "long": True,
    "states": "compiling warming",
    "traced": True,  # no record tells when the other code is swapped in
    "env": {
        "TORCHINDUCTOR_FX_COMPILE_MODE": "ASYNC+SUBPROCESS",
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",  # this mode does not work with it (torch 2.13)
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
    },
    "on": {
        "2.6": {"lacks": "2.6 has no such mode"},
        "2.8": {"lacks": "2.8 cannot pickle the graph for the other process"},
        "2.11": {"traced": False},  # no event tells either
    },
}

model = small()
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters())
train(compiled, optimizer, steps=8)
codes = [one for one in gc.get_objects() if type(one) is _AsyncOutputCode]
while not all(code._future is None or code._future.done() for code in codes):
    time.sleep(0.02)
train(compiled, optimizer, steps=8)
assert _AsyncFxCompile._stat_bg_finished == len(codes) == 2
finish()
