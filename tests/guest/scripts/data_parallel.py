"""DistributedDataParallel on two ranks, compiled, with ZeRO's optimizer."""
# ranks: 2
# steps: 3 3

import os

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = dist.FileStore(os.path.abspath("../store"), size)
dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
wrapped = torch.nn.parallel.DistributedDataParallel(model)
compiled = torch.compile(wrapped, backend="aot_eager")
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
for _ in range(3):
    loss = compiled(torch.ones(2, 4) * (rank + 1)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
dist.destroy_process_group()
