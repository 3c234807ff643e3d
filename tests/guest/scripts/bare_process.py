"""Few descriptors, all used or closed, another folder and mask: what daemons do first."""

import os
import resource

import torch

before = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, before[1]))
os.umask(0o077)
os.makedirs("elsewhere", exist_ok=True)
os.chdir("elsewhere")
weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.1)


def step():
    weight.sum().backward()
    optimizer.step()
    print(weight.sum().item(), flush=True)


compiled = torch.compile(lambda x: x * weight, backend="eager")
print(compiled(torch.ones(4)).sum().item())
step()
files = []
try:
    while True:
        files.append(open("file", "w"))
except OSError as error:
    print(error.errno)
step()
print(compiled(torch.ones(4)).sum().item())
for file in files:
    file.close()
step()
os.closerange(3, 64)
step()
print(sorted(os.listdir(".")), oct(os.stat("file").st_mode))
os.chdir("..")
resource.setrlimit(resource.RLIMIT_NOFILE, before)
