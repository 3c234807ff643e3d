"""A ragged batch after warm, on two GPUs: both ranks compile again."""

import torch
from _gpu import RANK, Blocks, finish, join, part, train

EXPECT = {
    "states": "compiling warming warm recompiling warm",
    "categories": "shape shape",
    "cold": True,
    "ranks": 2,
}

join()
net = torch.nn.parallel.DistributedDataParallel(Blocks(), device_ids=[RANK])
optimizer = torch.optim.AdamW(net.parameters())
compiled = torch.compile(net)
train(compiled, optimizer, steps=8)
train(compiled, optimizer, steps=8, size=48)
part()
finish()
