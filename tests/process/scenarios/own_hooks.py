"""The user's hooks on functions that the agent wraps, installed after it and removed midway."""

import os
from typing import Any

import torch
from _common import attach, finish, note, small, train
from torch._dynamo.callback import callback_handler
from torch._dynamo.utils import ChromiumEventLogger
from torch.optim.optimizer import register_optimizer_step_post_hook

EXPECT = {"long": True, "states": "compiling warming warm recompiling warm", "categories": "shape"}

heard = {"start": 0, "end": 0, "events": 0, "steps": 0}


def count(what: str) -> Any:
    def heard_of(*args: Any) -> None:
        heard[what] += 1

    return heard_of


start = callback_handler.register_start_callback(count("start"))
end = callback_handler.register_end_callback(count("end"))
original = ChromiumEventLogger.log_event_start


def log_event_start(self: Any, *args: Any, **kwargs: Any) -> Any:
    heard["events"] += 1
    return original(self, *args, **kwargs)


ChromiumEventLogger.log_event_start = log_event_start
handle = register_optimizer_step_post_hook(count("steps"))
if "SCENARIO_LATE" in os.environ:
    attach()
model = small()
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
train(compiled, optimizer, steps=6)
callback_handler.remove_start_callback(start)
callback_handler.remove_end_callback(end)
ChromiumEventLogger.log_event_start = original
handle.remove()
train(compiled, optimizer, steps=6, size=7)
note(torch.tensor(list(heard.values())))
assert min(heard.values()) > 0, heard
finish()
