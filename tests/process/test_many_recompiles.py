"""Thousands of real recompiles in one process, with and without the agent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.records import environment

RECOMPILES, OF_A_FUNCTION = 2_000, 100
MOST_CPU, MOST_GROWTH_MB = 1.15, 30

# Each size recompiles the function, and PyTorch compares it with every earlier entry.
PROGRAM = f"""
import json, sys, time
if sys.argv[2] == "agent":
    import warmwatch.auto
import torch
import torch._dynamo as dynamo
wanted, each = int(sys.argv[1]), {OF_A_FUNCTION}
dynamo.config.automatic_dynamic_shapes = False
for limit in ("recompile_limit", "cache_size_limit"):
    if hasattr(dynamo.config, limit):
        setattr(dynamo.config, limit, each + 10)
        setattr(dynamo.config, "accumulated_" + limit, each + 10)

def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6

def function(number):
    names = {{}}
    exec(f"def step(x): return x * {{number}} + 1", names)
    return torch.compile(names["step"], backend="eager")

total, middle_mb, began = 0.0, 0.0, time.process_time()
for number in range(wanted // each):
    if number == wanted // each // 2:
        middle_mb = resident_mb()
    step = function(number)
    for size in range(1, each + 2):
        total += float(step(torch.ones(size + 1)).sum())
print(json.dumps({{
    "total": total,
    "graphs": dynamo.utils.counters["stats"]["unique_graphs"],
    "cpu_seconds": time.process_time() - began,
    "grown_mb": resident_mb() - middle_mb,
}}))
"""


def start(records: Path, kind: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(count), kind],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(WARMWATCH_DIR=str(records)),
    )


def both(records: Path, count: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The results without and with the agent, of two processes that run at the same time."""
    with start(records, "none", count) as without, start(records, "agent", count) as with_agent:
        alone, beside = (one.communicate()[0] for one in (without, with_agent))
    return json.loads(alone), json.loads(beside)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_2_000_recompiles_cost_little_more_with_the_agent(tmp_path: Path) -> None:
    alone, beside = both(tmp_path, RECOMPILES)
    assert beside["total"] == alone["total"]
    assert beside["graphs"] == alone["graphs"] == RECOMPILES + RECOMPILES // OF_A_FUNCTION
    assert beside["cpu_seconds"] < MOST_CPU * alone["cpu_seconds"]
    assert beside["grown_mb"] < alone["grown_mb"] + MOST_GROWTH_MB
