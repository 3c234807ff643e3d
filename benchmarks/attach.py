"""What ``import warmwatch.auto`` costs after ``import torch``, in fresh processes."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from benchmarks.figure import Figure

CODE = """
import torch, time, sys, json
began = time.perf_counter()
import warmwatch.auto
spent = time.perf_counter() - began
print(json.dumps([spent, "torch._dynamo" in sys.modules]))
"""


def measure() -> Iterator[Figure]:
    spent = []
    with tempfile.TemporaryDirectory() as place:
        for _ in range(5):
            out = subprocess.run(
                [sys.executable, "-c", CODE],
                env={**os.environ, "WARMWATCH_DIR": place},
                stdout=subprocess.PIPE,
                check=True,
            ).stdout
            seconds, dynamo = json.loads(out)
            assert not dynamo, "the agent imported Dynamo"
            spent.append(seconds * 1e3)
    value = statistics.median(spent)
    yield Figure(name="attach: import after torch, ms", value=value, limit=20, detail="no Dynamo")
