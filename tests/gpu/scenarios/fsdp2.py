"""FSDP2 over two GPUs, each block compiled and then sharded: the first one's input has no gradient,
so the others compile once more, which is the first compilation of another instance."""

import torch
from _gpu import Blocks, finish, join, part, train
from torch.distributed.fsdp import fully_shard

EXPECT = {
    "states": "compiling warming warm",
    "categories": "new_instance",
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
