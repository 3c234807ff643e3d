"""A million steps of a trivial loop: memory stays flat."""
# long
# steps: 1000000
# seconds: 1800

import gc
import resource

import torch


class Count(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {})

    def step(self, closure=None):
        pass


optimizer = Count([torch.nn.Parameter(torch.ones(1))])


def kilobytes():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 1024


for _ in range(10_000):
    optimizer.step()
before = kilobytes()
for _ in range(990_000):
    optimizer.step()
grown = kilobytes() - before
print("flat" if grown < 4_096 else f"grown by {grown} kB")
