"""Tensor parallel on two ranks: DTensor parameters, compiled."""
# torch: 2.11
# ranks: 2
# steps: 3 3

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = dist.FileStore(os.path.abspath("../store"), size)
dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
mesh = init_device_mesh("cpu", (size,))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
parallelize_module(model, mesh, {"0": ColwiseParallel(), "1": RowwiseParallel()})
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
for _ in range(3):
    loss = compiled(torch.ones(2, 4)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
    model.to(torch.float64).to(torch.float32)
dist.destroy_process_group()
