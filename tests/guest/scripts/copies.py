"""deepcopy, pickle, torch.save and torch.load of model and optimizer between steps."""
# core
# steps: 6

import copy
import hashlib
import io
import pickle
import re

import optimizers
import torch


def size(value):
    data = re.sub(rb"\d{6,}", b"", pickle.dumps(value))  # addresses of storages, 8 or 9 digits
    return len(data), hashlib.sha256(data).hexdigest()[:12]


model = optimizers.model()
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
compiled = torch.compile(model, backend="eager")
for number in range(6):
    loss = compiled(torch.randn(8, 4)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item(), size(optimizer.state_dict())[0])
    twin = copy.deepcopy((model, optimizer))
    print(sorted(vars(twin[1])), sorted(vars(twin[0])))
    buffer = io.BytesIO()
    torch.save({"model": model, "optimizer": optimizer, "sums": model.state_dict()}, buffer)
    print(len(buffer.getvalue()))
    buffer.seek(0)
    back = torch.load(buffer, weights_only=False)
    print(sorted(vars(back["optimizer"])), back["model"][0].weight.sum().item())
    print(size(model)[0], size(optimizer)[0])
again = copy.deepcopy(compiled)
print(again(torch.ones(1, 4)).item())
