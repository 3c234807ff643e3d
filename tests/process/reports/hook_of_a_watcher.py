"""A watcher's forward hooks read each output as a number."""

import torch
from _loop import CURED, net, steps

SOURCE = "NVIDIA/makani#150"
EXPECT = {
    "names": ["item"],
    "remedy": ["capture_scalar_outputs"],
    "recompiles": 0,
    "breaks": 2,
    "cured": 0,
}


def watch(_module, _inputs, output):
    output.mean().item()


torch._dynamo.config.capture_scalar_outputs = CURED
net.register_forward_hook(watch)
compiled = torch.compile(net, backend="eager")
steps(8, lambda _: compiled(torch.ones(2, 4)))
