"""A user's own hooks in Triton's slots, set before the agent attaches late, and again after it.

One of the kernels was launched before that: it has bound Triton's compiler already.
"""

import os

os.environ["SCENARIO_LATE"] = "1"
from typing import Any

import torch
import triton
from _gpu import attach, batch, finish, mark, model, note
from _kernels import doubled, halved, listen, plain

EXPECT = {
    "states": "compiling warming warm recompiling warm",
    "beside": "shape shape",
    "cold": True,
}

heard = {"early": 0, "late": 0, "after": 0}


def count(which: str) -> Any:
    def hook(**event: Any) -> None:
        heard[which] += 1

    return hook


triton.knobs.compilation.listener = None
source = batch()
plain[(1,)](source, torch.empty_like(source), 16, BLOCK=256)
triton.knobs.compilation.listener = listen
early, knobs = count("early"), triton.knobs.runtime
knobs.jit_cache_hook = early
attach()
assert knobs.jit_cache_hook is early, "the agent took the user's place"
knobs.jit_post_compile_hook = count("after")
net = model()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(16):
    if step == 8:
        knobs.jit_cache_hook = count("late")
    size, block = (64, 1024) if step < 8 else (48, 512)
    loss = net(halved(doubled(batch(size)), block)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    mark(loss)
assert heard == {"early": 5, "late": 1, "after": 6}, heard
note(torch.tensor(list(heard.values())))
finish()
