"""Ten thousand compilations of ever new functions: the agent's memory stays flat."""
# long
# environment: TORCH_LOGS=
# seconds: 1800

import gc
import resource

import torch


def kilobytes():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 1024


def compilations(count):
    for _ in range(count):
        space = {"torch": torch}
        exec("def forward(x):\n    return x + 1", space)
        torch.compile(space["forward"], backend="eager")(torch.ones(2))
        if _ % 100 == 99:
            torch._dynamo.reset()


compilations(1_000)
before = kilobytes()
compilations(9_000)
grown = kilobytes() - before
print("flat" if grown < 40_000 else f"grown by {grown} kB")
