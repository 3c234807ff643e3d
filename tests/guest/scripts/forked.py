"""os.fork in mid-training: both go on, the child ends by os._exit and by an exception."""
# steps: 4

import os
import sys

import optimizers
import torch

model = optimizers.model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
compiled = torch.compile(model, backend="eager")


def steps(count, size=4):
    for _ in range(count):
        loss = compiled(torch.randn(size, 4)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item(), flush=True)


steps(2)
for end in ("exit", "error"):
    if pid := os.fork():
        print(end, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        continue
    with torch.no_grad():
        print("child", compiled(torch.ones(3, 4)).sum().item(), flush=True)
    if end == "exit":
        os._exit(3)
    sys.exit("the child's own error")
steps(2)
