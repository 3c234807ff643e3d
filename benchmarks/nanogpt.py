"""The training that ``benchmarks.comparison`` runs beside each tool: a small GPT on the CPU.

``python benchmarks/nanogpt.py FILE STEPS``, with the repository on ``PYTHONPATH``: half-way the
batch grows, so PyTorch compiles again. FILE gets the truth as JSON: when each compilation began and
ended, by PyTorch's own callbacks, and the end and the CPU time of each step.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

if os.environ.get("BENCHMARK_AGENT"):
    import warmwatch.auto  # noqa: F401

import torch
from torch._dynamo import callback
from torch.utils.data import DataLoader

from benchmarks.gpt import GPT, Size

SIZE = Size(layers=1, heads=4, width=128, vocabulary=512, context=64)
BATCH, LARGER_BATCH = 8, 12


def main(file: str, steps: int) -> None:
    """Train, and write when it compiled and how long each step took."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    compiling: list[list[float]] = []
    callback.on_compile_start(lambda *_: compiling.append([time.time()]))
    callback.on_compile_end(lambda *_: compiling[-1].append(time.time()))
    model = GPT(SIZE)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    trace_step: Any = nullcontext
    if os.environ.get("BENCHMARK_TRACEML"):
        import traceml_ai as traceml

        traceml.init(mode="auto")
        trace_step = traceml.trace_step
    data = torch.randint(SIZE.vocabulary, (steps * LARGER_BATCH, 2, SIZE.context))
    ended = []
    for batch in (BATCH, LARGER_BATCH):
        for pairs in islice(DataLoader(data, batch_size=batch), steps // 2):
            with trace_step(compiled):
                compiled(*pairs.unbind(1)).backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            ended.append((time.time(), time.process_time()))
    truth = {"compiling": compiling, "steps": ended, "pid": os.getpid()}
    Path(file).write_text(json.dumps(truth))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
