"""What the trainings share: a small model, its steps, and PyTorch's own counts.

``CURED``: whether the remedy is applied.
"""

import os
from collections.abc import Callable
from typing import Any

import torch

CURED = "CURED" in os.environ
torch.manual_seed(0)
net = torch.nn.Linear(4, 4)
# of 2.8 and later, and of 2.6
LIMIT = "recompile_limit"
if not hasattr(torch._dynamo.config, LIMIT):
    LIMIT = "cache_size_limit"
optimizer = torch.optim.SGD(net.parameters(), 0.01)


def steps(count: int, loss_of: Callable[[int], Any]) -> None:
    for number in range(count):
        loss_of(number).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def counts() -> dict[str, int]:
    from torch._dynamo.utils import counters, get_compilation_metrics

    return {
        "recompiles": sum(map(_is_recompile, get_compilation_metrics())),
        "breaks": sum(counters["graph_break"].values()),
        "graphs": counters["stats"]["unique_graphs"],
    }


def _is_recompile(compilation: Any) -> bool:
    if hasattr(compilation, "recompile_reason"):
        return bool(compilation.recompile_reason)
    number = str(compilation.compile_id).rpartition("/")[2]  # 2.6 records no reason
    return bool(compilation.co_name) and not number.startswith("0")
