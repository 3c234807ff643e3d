"""Thousands of real recompiles in one process, with and without the agent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.records import environment
from warmwatch.shared import record

RECOMPILES, OF_A_FUNCTION = int(os.environ.get("RECOMPILES", "1000")), 5
MOST_CPU, MOST_GROWTH_MB, MOST_RECORD_MB = 1.2, 10, 9

# Many functions with a few recompiles each: PyTorch compares a function with each of its entries,
# so a thousand recompiles of one would cost more and more without the agent too. PyTorch measures
# the guards of each entry with an emptied cache, half of all time; without that the agent's share
# is larger, and more exact.
PROGRAM = f"""
import json, sys, time
if sys.argv[2] == "agent":
    import warmwatch.auto
import torch
from torch._dynamo import config, guards, utils
wanted, each = int(sys.argv[1]), {OF_A_FUNCTION}
config.automatic_dynamic_shapes = False
if hasattr(guards, "profile_guard_manager"):
    guards.profile_guard_manager = lambda *_: 0.0
utils.set_compilation_metrics_limit(2 * wanted)

def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6

def function(number):
    names = {{}}
    exec(f"def step{{number}}(x): return x * {{number}} + 1", names)
    return torch.compile(names[f"step{{number}}"], backend="eager")

function(0)(torch.ones(2))
total, kept, began = 0.0, [], time.process_time()
for number in range(1, 1 + wanted // each):
    if number == wanted // each // 2:
        middle_mb = resident_mb()
    kept.append(function(number))
    for size in range(2, each + 3):
        total += float(kept[-1](torch.ones(size)).sum())
cpu_seconds, known = time.process_time() - began, utils.get_compilation_metrics()
print(json.dumps({{
    "total": total,
    "compilations": len(known),
    "graphs": utils.counters["stats"]["unique_graphs"],
    "recompiles": sum(one.recompile_reason is not None for one in known),
    "cpu_seconds": cpu_seconds,
    "grown_mb": resident_mb() - middle_mb,
}}))
"""
COUNTS = ("compilations", "graphs", "recompiles")


def start(records: Path, kind: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(RECOMPILES), kind],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(WARMWATCH_DIR=str(records)),
    )


def both(records: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The results without and with the agent, of two processes that run at the same time."""
    with start(records, "none") as without, start(records, "agent") as with_agent:
        alone, beside = (one.communicate()[0] for one in (without, with_agent))
    return json.loads(alone), json.loads(beside)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_recompiles_are_counted_and_cost_little_more_with_the_agent(tmp_path: Path) -> None:
    alone, beside = both(tmp_path)
    (folder,) = tmp_path.iterdir()
    counts = record.unpack((folder / record.SLOT).read_bytes()).compile
    whole = RECOMPILES + RECOMPILES // OF_A_FUNCTION + 1
    assert [beside[name] for name in COUNTS] == [whole, whole, RECOMPILES]
    assert [sum(counts.compilations), counts.graphs, sum(counts.recompiles_by_category)] == [
        whole,
        whole,
        RECOMPILES,
    ]
    assert {name: alone[name] for name in (*COUNTS, "total")}.items() <= beside.items()
    assert beside["cpu_seconds"] < MOST_CPU * alone["cpu_seconds"]
    assert beside["grown_mb"] < alone["grown_mb"] + MOST_GROWTH_MB
    assert sum(one.stat().st_size for one in folder.iterdir()) < MOST_RECORD_MB * 1e6
