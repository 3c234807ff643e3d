"""One rank of the ``/status`` answer."""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict

from warmwatch_monitor.export.answer.compile import compiler
from warmwatch_monitor.export.answer.steps import (
    baseline,
    batches,
    cost,
    long_step,
    pauses,
    slower,
    step_seconds,
    warmup,
)
from warmwatch_monitor.export.words.conditions import conditions
from warmwatch_monitor.export.words.ends import how
from warmwatch_monitor.export.words.evidence import evidence
from warmwatch_monitor.model import DTYPE, Memory, RankView, Worth

_FORMULA = "6 x parameters x tokens"


def rank(view: RankView, *, ended_together: bool | None = None) -> dict[str, Any]:
    """A rank as JSON; ``ended_together`` is its run's."""
    figures, judgement = view.figures, view.judgement
    return {
        "rank": view.rank,
        "state": judgement.state.value,
        "attached_at": figures.who.attached_at,
        "since": figures.progress.state_since,
        "steps": figures.steps.count,
        "clean_steps": judgement.clean_steps,
        "last_step_age_seconds": figures.progress.last_step_age_seconds,
        "compile": compiler(view),
        "warm_by": judgement.warm_by,
        "warmup": warmup(figures.warmups),
        "step_seconds": step_seconds(figures.steps),
        "long_steps": [long_step(one) for one in figures.log.long_steps],
        "slower": None if view.slower is None else slower(view.slower),
        "batches": batches(figures.steps),
        "pauses": pauses(view),
        "cost": cost(figures.steps),
        "baseline": baseline(view.figures),
        "worth": _worth(view),
        "conditions": [{"condition": name, "words": said} for name, said in conditions(view)],
        "gpus": list(view.gpu_uuids),
        "energy": _energy(view),
        "evidence": evidence(view),
        "pid": figures.life.pid,
        "host": figures.who.host,
        "attempt": figures.who.attempt,
        "collective_timeout_seconds": figures.who.collective_timeout_seconds,
        "collective_backend": figures.who.collective_backend,
        "alive": figures.life.alive,
        "end": ending(view, ended_together),
        "process": _process(view),
        "torch_memory_bytes": _memory(figures.memory),
        "agent_errors": figures.agent.errors,
        "journal_unread_bytes": figures.agent.incomplete_bytes,
    }


def ending(view: RankView, ended_together: bool | None) -> dict[str, Any] | None:
    """How it ended; ``None`` while it has not."""
    ended, life = how(view), view.figures.life
    if ended is None:
        return None
    return {
        "how": ended,
        "exit_code": life.exit_code,
        "exception": life.exception,
        "signal": life.signal,
        "out_of_memory": view.oom_killed,
        "ended_together": ended_together,
    }


def _worth(view: RankView) -> dict[str, Any] | None:
    """What a step is worth, and what its recent steps come to; ``None`` where nobody said."""
    worth, mfu = view.figures.worth, view.utilization
    if worth == Worth():
        return None
    seconds = view.figures.steps.length
    return {
        "tokens_per_second": worth.tokens / seconds if worth.tokens and seconds else None,
        "samples_per_second": worth.samples / seconds if worth.samples and seconds else None,
        "mfu_ratio": mfu.ratio if mfu else None,
        "tokens_per_step": worth.tokens,
        "samples_per_step": worth.samples,
        "flops_per_step": worth.operations,
        "formula": _FORMULA if worth.flops is None and worth.operations is not None else None,
        "parameters": worth.parameters,
        "estimated": worth.estimated,
        "dtype": worth.dtype or DTYPE,
        "peak_flops": mfu.peak_flops if mfu else None,
    }


def _energy(view: RankView) -> dict[str, float | None] | None:
    """``covered_seconds`` is the compile time that ``compile_joules`` speaks of: less than the
    rank's where the monitor came late.
    """
    if view.spending is None:
        return None
    return {
        "compile_joules": view.compile_joules,
        "covered_seconds": view.spending.compile_seconds,
        "joules_per_clean_step": view.joules_per_clean_step,
    }


def _process(view: RankView) -> dict[str, Any] | None:
    if view.process is None:
        return None
    known = asdict(view.process)
    del known["pid"]
    return {**known, "compilers": [asdict(one) for one in view.process.compilers]}


def _memory(memory: Memory | None) -> dict[str, Any] | None:
    return None if memory is None else {"at": memory.at, **memory.bytes}
