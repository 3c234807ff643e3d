"""Hand-built run summaries: the answers of builders' ranks, as ``/status`` makes them.

Times are relative to the snapshot's EPOCH, as in ``builders``.
"""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins

from support import builders as b
from support.builders import EPOCH
from support.values import replace
from warmwatch_monitor.model.journal import Wrapping
from warmwatch_monitor.model.run_summary import (
    Compiled,
    Provenance,
    RankSummary,
    RunSummary,
    Samples,
)
from warmwatch_monitor.model.snapshot import RankView
from warmwatch_monitor.status.run import rank as answer_of
from warmwatch_monitor.status.words.run import run_answer

FORWARD = Compiled(
    ended=EPOCH - 150,
    seconds=80.0,
    step=0,
    id="0/0",
    kind="forward",
    name="forward",
    file="model.py",
    line=31,
    cache="miss",
    phase_seconds={"dynamo": 5.0, "inductor": 60.0, "kernel_compile": 15.0},
    ops=1204,
)
BACKWARD = Compiled(
    ended=EPOCH - 130,
    seconds=20.0,
    step=0,
    id="0/0",
    kind="backward",
    cache="miss",
    phase_seconds={"aot_autograd": 2.0, "inductor": 18.0},
)
AGAIN = Compiled(
    ended=EPOCH - 60,
    seconds=10.0,
    step=1200,
    id="0/1",
    kind="forward",
    name="forward",
    file="model.py",
    line=31,
    cache="miss",
    reason="0/0: tensor 'tokens' size mismatch at index 1. expected 1024, actual 960",
    category="shape",
    phase_seconds={"dynamo": 1.0, "inductor": 9.0},
)
AGAIN_BACK = replace(
    BACKWARD, id="0/1", ended=EPOCH - 55, seconds=4.0, step=1200, phase_seconds={"inductor": 4.0}
)
FIRST = (FORWARD, BACKWARD)
TWICE = (*FIRST, AGAIN, AGAIN_BACK)
H100 = Provenance(
    script="train.py",
    torch="2.13.0",
    python="3.11.2",
    gpus=("NVIDIA H100 80GB HBM3",),
    world_size=1,
    wrappings=(Wrapping(),),
)


def run_summary(
    *views: RankView,
    compiled: tuple[Compiled, ...] = (),
    answers: dict[str, Any] | None = None,
    samples: Samples | None = None,
    **rest: Any,
) -> RunSummary:
    """A run of these ranks, all of which ``compiled`` the same.

    ``answers``: what differs in each rank's answer, by dotted keys.
    """
    (run,) = b.runs(*views)
    ended = None if run.living else EPOCH - 12
    known: dict[str, Any] = {
        "id": "k3nuf63p",
        "run": run.run,
        "host": "node1",
        "began": EPOCH - 300,
        "ended": ended,
        "seen": EPOCH,
        "state": run.state.value,
        "summary": run_answer(run).summary,
        "what": H100,
        **rest,
    }
    ranks = tuple(
        RankSummary(
            rank=view.rank,
            answer=_changed(to_builtins(answer_of(view)), answers or {}),
            compiled=compiled,
            samples=samples,
        )
        for view in run.ranks
    )
    return RunSummary(ranks=ranks, **known)


def _changed(answer: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    for key, value in changes.items():
        place = answer
        *way, last = key.split(".")
        for part in way:
            place = place[part]
        place[last] = value
    return answer


SLOWER = {
    "began_at": EPOCH - 100,
    "ended_at": EPOCH - 60,
    "since_step": 300,
    "until_step": 400,
    "seconds": 0.4,
    "before": 0.024,
    "ratio": 16.7,
    "causes": ["load 8.9 on 2 CPUs"],
}


def warm(**rest: Any) -> RunSummary:
    """A run that compiled for 120 s in its first step, and again later; it still trains."""
    return run_summary(b.view(b.WARM), compiled=rest.pop("compiled", TWICE), **rest)


def finished(**rest: Any) -> RunSummary:
    """The same, when it has ended."""
    view = b.view(b.ended("finished"), alive=False)
    return run_summary(view, compiled=rest.pop("compiled", TWICE), **rest)


def eager(**rest: Any) -> RunSummary:
    """One that never compiled."""
    what = replace(H100, wrappings=())
    return run_summary(b.view(b.ended("finished", b.EAGER), alive=False), what=what, **rest)


def power(watts: float = 690.0) -> Samples:
    """A GPU's minute."""
    return Samples(
        seconds=1.0,
        epochs=tuple(EPOCH - 60 + at for at in range(60)),
        columns={"power_watts": (watts,) * 60, "utilization_ratio": (0.99,) * 60},
    )


def steps() -> Samples:
    """A rank's minute, without polls in its middle."""
    return Samples(
        seconds=1.0,
        epochs=tuple(EPOCH - 60 + at for at in range(60)),
        columns={
            "steps": tuple(float(at * 20) for at in range(60)),
            "step_seconds": (*(0.036,) * 30, None, *(0.037,) * 29),
            "compile_seconds": (120.0,) * 60,
            "state": (*("recompiling",) * 20, *("warm",) * 40),
            "phase": (None,) * 60,
        },
    )
