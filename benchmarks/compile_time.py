"""Compile time with the agent over without it: alternating fresh processes, all caches off."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from benchmarks.figure import Figure

PAIRS = 7
CODE = """
import sys, json, time
if sys.argv[1] == "with": import warmwatch.auto
import torch
torch.manual_seed(0); torch.set_num_threads(1)
layer = torch.nn.TransformerEncoderLayer(32, 2, 64, batch_first=True, dropout=0.0)
model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
optimizer = torch.optim.AdamW(model.parameters())
compiled = torch.compile(model)
began = time.process_time(), time.perf_counter()
compiled(torch.randn(4, 8, 32)).square().mean().backward()
optimizer.step()
print(json.dumps([time.process_time() - began[0], time.perf_counter() - began[1]]))
"""


def measure() -> Iterator[Figure]:
    cpu: dict[str, list[float]] = {"with": [], "without": []}
    wall: dict[str, list[float]] = {"with": [], "without": []}
    for pair in range(PAIRS):
        for how in ("with", "without") if pair % 2 else ("without", "with"):
            spent = _compile(how)
            cpu[how].append(spent[0])
            wall[how].append(spent[1])
    for name, spent_by in (("CPU", cpu), ("wall", wall)):
        medians = {how: statistics.median(values) for how, values in spent_by.items()}
        spread = statistics.stdev(spent_by["without"]) / medians["without"]
        yield Figure(
            name=f"compile time: with / without, {name}, {PAIRS} pairs",
            value=medians["with"] / medians["without"],
            limit=1.01 if name == "CPU" else None,
            detail=f"{medians['with']:.2f} s over {medians['without']:.2f} s, "
            f"deviation of one run {spread:.1%}",
        )


def _compile(how: str) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as place:
        out = subprocess.run(
            [sys.executable, "-c", CODE, how],
            env={
                **os.environ,
                "WARMWATCH_DIR": place,
                "TORCHINDUCTOR_CACHE_DIR": f"{place}/inductor",
                "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
                "TORCHINDUCTOR_COMPILE_THREADS": "1",
            },
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
    cpu, wall = json.loads(out)
    return cpu, wall
