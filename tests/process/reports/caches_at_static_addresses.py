"""Each layer has a cache at a static address, which is an identity to PyTorch: each compiles."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#156377"
EXPECT = {
    "category": "object_identity",
    "names": ["`cache` is no longer the same `Tensor`"],
    "remedy": ["guard=False"],
    "recompiles": 3,
    "cured": 0,
}

caches = [torch.zeros(4) for _ in range(4)]
for cache in caches:
    torch._dynamo.mark_static_address(cache, guard=not CURED)


@torch.compile(backend="eager")
def layer(x, cache):
    return net(x) + cache


def loss_of(_number):
    x = net(torch.ones(2, 4))
    for cache in caches:
        x = layer(x, cache)
    return x


steps(6, loss_of)
