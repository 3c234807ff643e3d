"""FSDP2 over two GPUs, each block compiled and then sharded: the first one's input has no gradient,
so the code of all blocks compiles once more for the others."""

import torch
from _gpu import Blocks, finish, join, part, train
from torch.distributed.fsdp import fully_shard

EXPECT = {
    "states": "compiling warming warm",
    "categories": "requires_grad",
    "cold": True,
    "ranks": 2,
}

join()
net = Blocks()
for block in net.blocks:
    block.compile()
    fully_shard(block)
fully_shard(net)
optimizer = torch.optim.AdamW(net.parameters())
train(net, optimizer, steps=12)
part()
finish()
