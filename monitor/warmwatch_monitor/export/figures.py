"""Figures derived from one rank's record, so that /status, sentences and metrics agree on them.

Pure: a RankView and the snapshot's clock in, numbers out. Durations are nanoseconds (``*_ns``)
as in the record. What the record does not know is ``None``.
"""

from __future__ import annotations

from collections.abc import Iterable

from warmwatch.record import KINDS, PHASES, CompileCounts, Slot, Warmup, quantile_ns
from warmwatch.verdict import ENDED, State, clean_steps, least_advanced, stall_after_ns
from warmwatch_monitor.model import RankView
from warmwatch_monitor.runs import facts

_OTHER = PHASES.index("other")
# A kernel's autotuning and a CUDA graph's recording happen at run time: they compile no graph.
_COMPILED = tuple(KINDS.index(kind) for kind in ("forward", "backward", "other"))


def is_living(view: RankView) -> bool:
    """Whether the rank has not ended."""
    return view.judgement.state not in ENDED


def in_progress_ns(view: RankView, now_ns: int) -> int | None:
    """How long the activity now in progress has taken; ``None`` where none is."""
    if not view.judgement.compiling:
        return None
    return max(0, now_ns - view.reading.slot.compile.active_since_ns)


def phase_ns(view: RankView, now_ns: int) -> tuple[int, ...]:
    """Exclusive compile time of each of PHASES, the activity in progress included.

    A process that died while it compiled did so until its end was seen, so the figures of a
    rank never shrink.
    """
    compile = view.reading.slot.compile
    if not compile.active_since_ns:
        return compile.phase_ns
    until = now_ns if is_living(view) else compile.ended_ns or view.reading.gone_ns or 0
    phase = compile.active_phase - 1 if compile.active_phase else _OTHER
    open_ns = max(0, until - compile.accounted_ns)
    return tuple(ns + open_ns * (i == phase) for i, ns in enumerate(compile.phase_ns))


def compilations(compile: CompileCounts) -> int:
    """Graphs compiled, forward and backward."""
    return sum(compile.compilations[kind] for kind in _COMPILED)


def gpu_seconds(view: RankView, now_ns: int) -> float | None:
    """Compile time of the rank times its GPUs, in seconds; ``None`` where it told of none."""
    gpus = len(view.reading.slot.identity.gpus)
    return sum(phase_ns(view, now_ns)) / 1e9 * gpus if gpus else None


def gpu_uuids(view: RankView) -> tuple[str, ...]:
    """The GPUs of the rank as NVML spells them, else as CUDA does."""
    if len(view.gpus) == len(view.reading.slot.identity.gpus):
        return tuple(gpu.uuid for gpu in view.gpus)
    return view.reading.slot.identity.gpus


def compile_joules(view: RankView) -> float | None:
    """Energy of the rank's GPUs while it compiled; ``None`` where none of that was measured."""
    spent, compile = view.spending, view.reading.slot.compile
    if spent is None or (compile.begun and not spent.compile_seconds):
        return None
    return spent.compile_joules


def joules_per_clean_step(view: RankView) -> float | None:
    """Energy of the rank's GPUs for a clean step; ``None`` where none was measured."""
    spent = view.spending
    return spent.clean_joules / spent.clean_steps if spent and spent.clean_steps else None


def tells(slot: Slot, seam: str) -> bool:
    """Whether the rank's torch has ``seam``: what only that would count is not known without."""
    return seam not in slot.identity.missing


def ended_warmup(slot: Slot) -> Warmup | None:
    """The latest warm-up where it has ended and nothing has begun since; else ``None``.

    Between the K-th clean mark and the entry of the warm-up that it ended, a reader finds the
    entry of an earlier one: that is not the answer either.
    """
    compile = slot.compile
    if not compile.warmups or clean_steps(slot.steps, compile) < slot.header.warm_steps:
        return None
    warmup = compile.last_warmup
    return warmup if warmup.ended_ns and warmup.ended_ns >= compile.last_end_ns else None


def median_step_ns(slot: Slot) -> float | None:
    """Median length of the clean steps."""
    return quantile_ns(slot.clean_bins, 0.5)


def warm_at_step(slot: Slot) -> int:
    """Number of the step that made the rank warm: the K-th clean one of the present row."""
    return slot.compile.clean_after + slot.header.warm_steps


def stall_limit_ns(view: RankView) -> int:
    """How long this rank may stay quiet before it counts as stalled."""
    return stall_after_ns(facts(view.reading))


def quiet_ns(view: RankView, now_ns: int) -> int:
    """Time since the last sign of progress: a step, the end of an activity, or attaching."""
    slot = view.reading.slot
    last = max(slot.header.attached_ns, slot.steps.last_step_ns, slot.compile.last_end_ns)
    return max(0, now_ns - last)


def all_warm(views: Iterable[RankView]) -> bool | None:
    """Whether every living rank is warm; ``None`` where none lives."""
    living = [view for view in views if is_living(view)]
    return all(view.judgement.warm for view in living) if living else None


def any_compiling(views: Iterable[RankView]) -> bool | None:
    """Whether any living rank has compile activity now; ``None`` where none lives."""
    living = [view for view in views if is_living(view)]
    return any(view.judgement.compiling for view in living) if living else None


def by_advancement(states: Iterable[State]) -> list[State]:
    """The states, least advanced first."""
    left, ordered = set(states), list[State]()
    while left:
        ordered.append(least_advanced(left))
        left.remove(ordered[-1])
    return ordered
