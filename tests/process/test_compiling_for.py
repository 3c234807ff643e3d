"""Two real ranks that compile in turns: the time in every view goes on while the ranks change."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from support.daemon import completed, daemon, status_of
from support.trainings import environment, training
from warmwatch.shared.phrases import duration

# Each function compiles for long on one rank and shortly on the other, which then waits for it in a
# collective. In step 4 all of them compile again.
TURNS = """
import os, time
import torch.distributed as dist

dist.init_process_group("gloo")
RANK = dist.get_rank()

def takes(seconds):
    def backend(graph, inputs):
        time.sleep(seconds)
        return graph.forward
    return backend

def part(number):
    def of(x):
        return x * number
    slow = number % 2 == RANK
    return torch.compile(of, backend=takes(1.5 if slow else 0.1), dynamic=False)

parts = [part(number) for number in range(1, 5)]
weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=.1)
for step in range(8):
    x = weight * torch.ones(2 if step < 4 else 3, 4)
    for one in parts:
        x = one(x)
        dist.barrier()
    x.sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""
_METRIC = r'warmwatch_run_compiling_start_timestamp_seconds\{run="train"\} (\S+)'


def only_run(answer: dict[str, Any]) -> dict[str, Any]:
    (run,) = answer["runs"]
    return {**run, "at": answer["at"]}


def without_daemon(records: Path) -> dict[str, Any] | None:
    done = completed("status", "--json", env=environment(records))
    answer = json.loads(done.stdout)
    return only_run(answer) if answer["runs"] else None


@pytest.mark.long  # most of a minute; tests/monitor/status/test_compiling_for.py has each case
def test_the_time_goes_on_while_the_ranks_compile_in_turns(records: Path) -> None:
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone")
    seen, beside, scraped = [], list[dict[str, Any]](), list[float]()
    with training(records, TURNS, launcher=launcher) as started, daemon(records) as url:
        while started.process.poll() is None:
            time.sleep(0.05)
            answer = status_of(url)
            if not answer["runs"]:
                continue
            seen.append(only_run(answer))
            if seen[-1]["compiling"] and len(seen) % 5 == 0:
                if found := without_daemon(records):
                    beside.append(found)
                with urllib.request.urlopen(f"{url}/metrics") as reply:
                    scraped += map(float, re.findall(_METRIC, reply.read().decode()))
        assert started.wait() == 0, started.stderr
    compiling = [run for run in (*seen, *beside) if run["compiling"]]
    of_step: dict[tuple[int, ...], list[dict[str, Any]]] = {}
    for run in compiling:
        of_step.setdefault(tuple(rank["steps"] for rank in run["ranks"]), []).append(run)
    longest = {steps: max(run["compiling_seconds"] for run in of_step[steps]) for steps in of_step}
    assert sum(seconds > 4 for seconds in longest.values()) == 2, longest
    for steps, runs in of_step.items():
        if len(steps) != 2 or steps[0] != steps[1]:
            continue  # one of them has just attached, or has marked the step first
        since = [run["compiling_since"] for run in runs]
        assert max(since) - min(since) < 0.05, (steps, since)
        for run in runs:  # its clocks are read one after the other, perhaps on a busy machine
            took = run["at"] - run["compiling_since"]
            assert run["compiling_seconds"] == pytest.approx(took, abs=1.0)
    for run in compiling:
        if run["state"] in ("compiling", "recompiling"):
            assert f" for {duration(run['compiling_seconds'])}" in run["summary"]
    begun = [run["compiling_since"] for run in compiling]
    assert all(min(abs(at - one) for one in begun) < 0.2 for at in scraped)
    assert scraped
    assert beside
