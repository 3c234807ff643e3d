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

PAIRS, LIMIT_US = 5, 60
FILES_LIMITS = {"outermost": 19, "change": 8, "same": 6}
CODE = """
import json, os, sys, time
if sys.argv[1] == "with": import warmwatch.auto
import torch, torch._dynamo
from torch._dynamo.utils import ChromiumEventLogger as Logger
from warmwatch.hooks.phases import phase_of
import warmwatch
times, phases, files = {"change": [], "same": [], "outermost": []}, [], {}
folder = os.path.dirname(warmwatch.__file__)

def count(frame, event, argument):
    if event == "call" and frame.f_code.co_filename.startswith(folder):
        entered.add(frame.f_code.co_filename)

def timed(method, begins):
    original = getattr(Logger, method)
    def call(logger, event, *args, **kwargs):
        global entered
        phase = phase_of(event) if begins else phases.pop()
        phase = phases[-1] if phase is None and phases else phase
        around = phases[-1] if phases else "outermost"
        kind = around if around == "outermost" else "same" if around == phase else "change"
        first = begins and kind not in files and bool(phases or event == "dynamo")
        if first: files[kind] = entered = set(); sys.setprofile(count)
        began = time.thread_time_ns()
        try: return original(logger, event, *args, **kwargs)
        finally:
            took = time.thread_time_ns() - began
            if first: sys.setprofile(None)
            else: times[kind].append(took)
            if begins: phases.append(phase)
    setattr(Logger, method, torch._dynamo.decorators.skip(call))

timed("log_event_start", True), timed("log_event_end", False)
weight = torch.nn.Parameter(torch.ones(8, 8))
for size in range(2, 10):  # products need no C++ compiler
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x @ weight @ weight, dynamic=False)
    compiled(torch.ones(size, 8)).backward(torch.ones(size, 8))
print(json.dumps([times, {kind: sorted(names) for kind, names in files.items()}]))
"""


def measure() -> Iterator[Figure]:
    """Medians over all events of a kind."""
    spent: dict[str, dict[str, list[int]]] = {"with": {}, "without": {}}
    files: dict[str, list[str]] = {}
    for pair in range(PAIRS):
        for how in ("with", "without") if pair % 2 else ("without", "with"):
            times, entered = _compile(how)
            files = entered if how == "with" else files
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
    for kind, names in files.items():
        yield Figure(
            name=f"compile events: files of the agent in the first begin, {kind}",
            value=len(names),
            limit=FILES_LIMITS[kind],
            detail=", ".join(name.rpartition("/warmwatch/")[2] for name in names),
        )


def _compile(how: str) -> tuple[dict[str, list[int]], dict[str, list[str]]]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        out = subprocess.run(
            [sys.executable, "-c", CODE, how],
            env={**os.environ, "WARMWATCH_DIR": place, "TORCHINDUCTOR_CACHE_DIR": f"{place}/cache"},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
    times, entered = json.loads(out)
    return times, entered
