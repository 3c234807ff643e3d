"""DistributedDataParallel over two GPUs: Dynamo's graph is split at the gradient buckets."""

import torch
from _gpu import RANK, Blocks, finish, join, part, train

EXPECT = {"states": "compiling warming warm", "cold": True, "ranks": 2}

join()
net = torch.nn.parallel.DistributedDataParallel(Blocks(), device_ids=[RANK], bucket_cap_mb=1)
optimizer = torch.optim.AdamW(net.parameters())
train(torch.compile(net), optimizer, steps=12)
part()
finish()
