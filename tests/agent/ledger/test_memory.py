"""The agent's memory does not grow with the number of compilations, threads or warnings."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tracemalloc
from types import CodeType

import pytest

from support.ranks import Rank
from warmwatch.hooks.dynamo.events import _remembered

FULL, MANY = 7_000, 10_000  # every table is full; and compilations


def _compile(rank: Rank, number: int) -> None:
    """A function of its own, compiled by a thread of its own: it fails, breaks, hits a limit."""
    ledger = rank.ledger
    where = {"name": f"f{number}", "file": f"{number}.py", "line": number}
    namespace: dict[str, object] = {}
    exec(f"def f{number}(): return {number}", namespace)
    code = getattr(namespace[f"f{number}"], "__code__", None)
    assert isinstance(code, CodeType)
    _, digest = _remembered(code, is_first=True)
    compile_id = f"{number}/0"
    ledger.begin("dynamo", {"id": compile_id, "code": digest, **where})
    ledger._compiling.begun(number, {"id": compile_id, "code": digest})  # ends without a record
    ledger._compiling.recompile(number, {"reason": str(number), "category": "shape"})
    ledger.post("graph", {"flops": number, "excluded": [f"operation {number}"]})
    ledger.post("progress", {"subject": "kernels", "done": 0, "total": 3})
    rank.pytorch.numbers = {"graph_breaks": number}
    rank.pytorch.breaks = {f"reason {number}": 1}
    ledger.post("fallback", {"id": compile_id, **where})
    ledger.post("compilation", {"kind": "forward", "id": compile_id, **where})
    ledger.post("compilation", {"kind": "cudagraph", "id": compile_id})
    ledger.end("dynamo")
    ledger.post("error", {"where": "hooks.events", "message": f"error {number}"})


@pytest.mark.long
@pytest.mark.slow
def test_ten_thousand_compilations_leave_the_memory_flat() -> None:
    """In a process of its own: threads of other tests take memory, too."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, __file__], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    # 80 bytes each: less than one more object; a dict that is resized alone takes 150,000
    assert int(done.stdout) < 80 * (MANY - FULL)


def _growth() -> int:
    """Bytes that are held after all compilations, and were not when every table was full."""
    rank = Rank()
    rank.store.note = lambda *_arguments, **_options: None  # type: ignore[method-assign]
    held: dict[int, int] = {}
    tracemalloc.start()
    for number in range(MANY):
        _compile(rank, number)
        if number in (FULL, MANY - 1):
            gc.collect()
            held[number], _ = tracemalloc.get_traced_memory()
    return held[MANY - 1] - held[FULL]


if __name__ == "__main__":
    print(_growth())
