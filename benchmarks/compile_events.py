"""What the agent adds to PyTorch's compile events, in place: in a real compilation by Inductor.

CPU time within the methods of PyTorch's event logger, where each event ends up, with the agent and
without it, in alternating fresh processes. Between two events the compiler runs, so none of the
agent's code is in the caches. A *change* is a nested event of another phase than the one around it,
which the record must show immediately.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from statistics import median

from benchmarks.figure import Figure

PAIRS, LIMIT_US, FILES_LIMIT = 5, 60, 15
CODE = """
import json, os, sys, time
if sys.argv[1] == "with": import warmwatch.auto
import torch, torch._dynamo
from torch._dynamo.utils import ChromiumEventLogger as Logger
from warmwatch.hooks.phases import phase_of
import warmwatch
times, phases, entered = {"change": [], "same": [], "outermost": []}, [], None
folder = os.path.dirname(warmwatch.__file__)

def count(frame, event, argument):
    if event == "call" and frame.f_code.co_filename.startswith(folder):
        entered.append(frame.f_code.co_filename)

def timed(method, begins):
    original = getattr(Logger, method)
    def call(logger, event, *args, **kwargs):
        global entered
        first = entered is None and begins and event == "dynamo"
        if first: entered = []; sys.setprofile(count)
        began = time.thread_time_ns()
        try: return original(logger, event, *args, **kwargs)
        finally:
            took = time.thread_time_ns() - began
            if first: sys.setprofile(None)
            phase = phase_of(event) if begins else phases.pop()
            phase = phases[-1] if phase is None and phases else phase
            around = phases[-1] if phases else "outermost"
            if begins: phases.append(phase)
            if not first:
                kind = "same" if around == phase else "change"
                times[around if around == "outermost" else kind].append(took)
    setattr(Logger, method, torch._dynamo.decorators.skip(call))

timed("log_event_start", True), timed("log_event_end", False)
weight = torch.nn.Parameter(torch.ones(8, 8))
for size in range(2, 10):  # products need no C++ compiler
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x @ weight @ weight, dynamic=False)
    compiled(torch.ones(size, 8)).backward(torch.ones(size, 8))
print(json.dumps([times, sorted(set(entered))]))
"""


def measure() -> Iterator[Figure]:
    """Medians over all events of a kind."""
    spent: dict[str, dict[str, list[int]]] = {"with": {}, "without": {}}
    files: list[str] = []
    for pair in range(PAIRS):
        for how in ("with", "without") if pair % 2 else ("without", "with"):
            times, entered = _compile(how)
            files = entered or files
            for kind, values in times.items():
                spent[how].setdefault(kind, []).extend(values)
    for kind in ("change", "same", "outermost"):
        ours, bare = (median(spent[how][kind]) / 1000 for how in ("with", "without"))
        yield Figure(
            name=f"compile events: {kind}, with the agent, us",
            value=ours,
            limit=LIMIT_US if kind == "change" else None,
            detail=f"{bare:.1f} without, {len(spent['with'][kind])} events",
        )
    yield Figure(
        name="compile events: files of the agent in the first begin of a compilation",
        value=len(files),
        limit=FILES_LIMIT,
        detail=", ".join(file.rpartition("/warmwatch/")[2] for file in files),
    )


def _compile(how: str) -> tuple[dict[str, list[int]], list[str]]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        out = subprocess.run(
            [sys.executable, "-c", CODE, how],
            env={**os.environ, "WARMWATCH_DIR": place, "TORCHINDUCTOR_CACHE_DIR": f"{place}/cache"},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
    times, entered = json.loads(out)
    return times, entered
