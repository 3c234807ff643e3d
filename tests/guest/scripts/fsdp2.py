"""FSDP2 on two ranks, with to() and load_state_dict(assign=True) after the first step."""
# core
# torch: 2.11
# ranks: 2
# steps: 4 4

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = dist.FileStore(os.path.abspath("../store"), size)
dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
mesh = init_device_mesh("cpu", (size,))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for _ in range(4):
    loss = model(torch.ones(2, 4) * (rank + 1)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
    model.to(torch.float64).to(torch.float32)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(state, assign=True)
print([p.to_local().sum().item() for p in model.parameters()])
dist.destroy_process_group()
