"""The history of 10,000 runs: its size, and the time to list runs and to find one.

Each run is as large as one of a daemon: 8 compiled functions; one run in ten has 1,000 rows of
samples of its rank and GPU, the others are short. Opening the file is part of each time.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec.structs import replace

from benchmarks.figure import Figure
from support import stored_runs as a
from warmwatch_monitor.history.finding import find
from warmwatch_monitor.history.listing import RunQuery
from warmwatch_monitor.model.run_summary import RunSummary, Samples

RUNS, ROUNDS = 10_000, 7


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as place:
        store = a.store(Path(place))
        began = time.perf_counter()
        for first in range(0, RUNS, 500):
            store.save(_run(number) for number in range(first, first + 500))
        spent = time.perf_counter() - began
        size = (Path(place) / "history.db").stat().st_size / 1e6
        yield Figure(name="history: 10,000 runs, MB", value=size, limit=512.0)
        yield Figure(name="history: to write one, ms", value=spent / RUNS * 1e3)
        latest = f"gpt{RUNS % 50}"
        for what, limit, work in (
            ("the latest 20", 100.0, lambda: store.listed(RunQuery(limit=20))),
            ("all", None, lambda: store.listed()),
            ("those that match", 100.0, lambda: store.listed(RunQuery(name="gpt1*", limit=20))),
            ("to find and load one", 100.0, lambda: find(store, latest)),
        ):
            yield Figure(name=f"history: {what}, ms", value=_ms(work), limit=limit)


def _run(number: int) -> RunSummary:
    chance = random.Random(number)
    rows = 1_000 if number % 10 == 0 else 60
    began = a.BEGAN + number * 600
    samples = Samples(
        seconds=4.0,
        epochs=tuple(began + 4.0 * row for row in range(rows)),
        columns={
            "steps": tuple(float(row) for row in range(rows)),
            "step_seconds": tuple(round(chance.uniform(0.03, 0.04), 6) for _ in range(rows)),
            "compile_seconds": tuple(1.0 if row < 20 else 0.0 for row in range(rows)),
            "state": tuple("compiling" if row < 20 else "warm" for row in range(rows)),
            "phase": tuple("inductor" if row < 20 else None for row in range(rows)),
        },
    )
    rank = a.rank(answer=a.answer(evidence=["x" * 80] * 40), compiled=a.COMPILED * 4)
    return replace(
        a.run_summary(f"{number:08x}"),
        run=f"gpt{number % 50}",
        began=began,
        ended=began + 500,
        seen=began + 501,
        ranks=(replace(rank, samples=samples),),
        gpu_samples={"GPU-1": samples},
    )


def _ms(work: Callable[[], object]) -> float:
    spent = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        spent.append(time.perf_counter() - began)
    return min(spent) * 1e3
