"""An inference loop that marks its steps with ``warmwatch.step()``."""

import torch
from _common import batch, finish, mark, small

import warmwatch

EXPECT = {"long": True, "states": "compiling warming warm recompiling warm", "categories": "shape"}

compiled = torch.compile(small().eval())
with torch.inference_mode():
    for size in (*[4] * 6, *[6] * 6):
        answer = compiled(batch(size))
        warmwatch.step()
        mark(answer)
finish()
