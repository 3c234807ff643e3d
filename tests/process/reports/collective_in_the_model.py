"""A collective of ``torch.distributed`` within the model: a graph break in PyTorch's own code."""

import tempfile
from pathlib import Path

import torch
from _loop import CURED, net, steps
from torch import distributed

SOURCE = "pytorch/pytorch#102478"
EXPECT = {"remedy": ["outside of the compiled"], "recompiles": 0, "breaks": 1, "cured": 0}
store = Path(tempfile.mkdtemp()) / "store"
distributed.init_process_group("gloo", rank=0, world_size=1, init_method=f"file://{store}")


@torch.compile(backend="eager")
def loss_of(x):
    y = net(x)
    if not CURED:
        distributed.broadcast(net.weight.detach(), src=0)
    return y.relu()


def outside(_):
    if CURED:
        distributed.broadcast(net.weight.detach(), src=0)
    return loss_of(torch.ones(2, 4))


steps(6, outside)
distributed.destroy_process_group()
