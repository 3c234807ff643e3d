"""Ten thousand compilations of ever new functions: the agent's memory stays flat."""
# long
# environment: TORCH_LOGS=
# seconds: 3600

import gc
import tracemalloc

import torch

OURS = tracemalloc.Filter(True, "*/warmwatch/*")


def ours():
    """Bytes that code of the agent has allocated and holds; PyTorch's own memory grows."""
    gc.collect()
    traces = tracemalloc.take_snapshot().filter_traces([OURS])
    return sum(one.size for one in traces.statistics("filename"))


def compilations(count):
    for number in range(count):
        space = {"torch": torch}
        exec("def forward(x):\n    return x + 1", space)
        torch.compile(space["forward"], backend="eager")(torch.ones(2))
        if number % 100 == 99:
            torch._dynamo.reset()


tracemalloc.start()
compilations(5_000)  # every table of the agent is full
before = ours()
compilations(5_000)
grown = ours() - before
print("flat" if grown < 80 * 5_000 else f"grown by {grown} bytes")
