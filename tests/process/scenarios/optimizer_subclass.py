"""An optimizer that calls ``super().step()``: two calls return, and they are one step."""

from typing import Any

import torch
from _common import finish, small, train

EXPECT = {"long": True, "states": "compiling warming warm"}


class Clipping(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        torch.nn.utils.clip_grad_norm_(self.param_groups[0]["params"], 1.0)
        return super().step(closure)


model = small()
train(torch.compile(model), Clipping(model.parameters(), lr=0.01), steps=8)
finish()
