"""Stored runs, built by hand, and a history that holds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from support.reported import FORWARD
from warmwatch_monitor.base.settings import HistorySettings
from warmwatch_monitor.history.store import Store
from warmwatch_monitor.model.journal import Wrapping
from warmwatch_monitor.model.run_summary import (
    Compiled,
    Provenance,
    RankSummary,
    RunSummary,
    Samples,
)

BEGAN = 1_795_000_000.0


def answer(**known: Any) -> dict[str, Any]:
    """As much of a rank's part of ``/status`` as the history reads."""
    return {
        "state": "finished",
        "attached_at": BEGAN,
        "steps": 500,
        "step_seconds": {"first": 17.5, "last": 0.036, "median": 0.036, "p99": 0.04},
        "warmup": {"first": {"ended_at": BEGAN + 20, "seconds": 18.5, "steps": 2}},
        "compile": {"seconds": 18.0, "compilations": 2, "recompiles": 1},
        "energy": None,
        **known,
    }


def samples(rows: int = 3) -> Samples:
    return Samples(
        seconds=1.0,
        epochs=tuple(BEGAN + second for second in range(rows)),
        columns={
            "steps": tuple(float(second) for second in range(rows)),
            "step_seconds": (None, *(0.036,) * (rows - 1)),
            "compile_seconds": (1.0, *(0.0,) * (rows - 1)),
            "state": ("compiling", *("warm",) * (rows - 1)),
            "phase": ("inductor", *(None,) * (rows - 1)),
        },
    )


COMPILED = (
    replace(
        FORWARD,
        ended=BEGAN + 11,
        seconds=10.5,
        cache=None,
        code="c0de",
        phase_seconds={"dynamo": 0.5, "inductor": 10.0},
        ops=120,
        slowest_kernels=(("triton_poi_fused_gelu_0", 1.5),),
    ),
    Compiled(ended=BEGAN + 18, reason="size mismatch", category="shape", cache="miss"),
)


def rank(number: int = 0, **known: Any) -> RankSummary:
    return RankSummary(**{"rank": number, "answer": answer(), "compiled": COMPILED, **known})


def run_summary(id: str = "abcdefgh", **known: Any) -> RunSummary:
    """A run that finished after 40 s."""
    return RunSummary(
        **{
            "id": id,
            "start": f"start-{id}",
            "run": "gpt2",
            "owner": "alice",
            "host": "node1",
            "began": BEGAN,
            "ended": BEGAN + 40,
            "seen": BEGAN + 41,
            "state": "finished",
            "summary": "gpt2: finished after 500 steps",
            "what": Provenance(torch="2.13.0", wrappings=(Wrapping(mode="max-autotune"),)),
            "ranks": (rank(),),
            **known,
        }
    )


def living(id: str = "abcdefgh", **known: Any) -> RunSummary:
    """The same run before its end."""
    return run_summary(id, **{"ended": None, "seen": BEGAN + 30, "state": "warm", **known})


def history_settings(directory: Path, **bounds: int) -> HistorySettings:
    """The history there; it holds what is old too."""
    return HistorySettings(directory=str(directory), chosen=True, **{"days": 36_500, **bounds})


def store(directory: Path, **how: Any) -> Store:
    return Store(history_settings(directory), **how)
