"""One rank of the ``/status`` answer."""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict

from warmwatch.words.advice import advice
from warmwatch.words.reasons import plain
from warmwatch_monitor.export.answer.functions import called, functions
from warmwatch_monitor.export.words.conditions import conditions
from warmwatch_monitor.export.words.ends import how
from warmwatch_monitor.export.words.evidence import evidence
from warmwatch_monitor.export.words.long_steps import is_evaluation, words
from warmwatch_monitor.export.words.remedy import remedy, since_seconds
from warmwatch_monitor.model import (
    CACHES,
    DTYPE,
    Compilation,
    Compile,
    Figures,
    LongStep,
    Memory,
    OpenActivity,
    RankView,
    Steps,
    Underway,
    VaryingDim,
    Warmups,
    WarmupSpan,
    Worth,
    beyond_steady_seconds,
    gain,
)

LAST = 5
BREAKS = 20
VARYING = 20
_FX = "inductor_fx"
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
        "compile": _compile(view),
        "warmup": _warmup(figures.warmups),
        "step_seconds": _step_seconds(figures.steps),
        "long_steps": [_long_step(one) for one in figures.log.long_steps],
        "batches": _batches(figures.steps),
        "pauses": _pauses(view),
        "cost": _cost(figures.steps),
        "baseline": _baseline(view.figures),
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
    }


def _compile(view: RankView) -> dict[str, Any]:
    compile = view.figures.compile
    return {
        "phase": view.judgement.phase,
        "seconds": compile.seconds,
        "limit_seconds": view.figures.progress.compile_limit_seconds,
        "idle_seconds": view.idle_seconds if view.judgement.compiling else None,
        "gpu_seconds": view.compile_gpu_seconds,
        "phase_seconds": {name: spent for name, spent in compile.phase_seconds.items() if spent},
        "compilations": compile.graphs_compiled,
        "graphs": compile.graphs,
        "graphs_before": compile.graphs_before,
        "recompiles": compile.recompiles_total,
        "recompiles_after_warm": compile.recompiles_after_warm,
        "graph_breaks": compile.graph_breaks,
        **_caches(compile),
        "failures": compile.failures,
        "fallbacks": compile.fallbacks,
        "wrappers": compile.wrappers,
        "disabled": compile.disabled,
        "cudagraph_skips": compile.cudagraph_skips,
        "progress": progress(compile.open),
        "estimate": _estimate(view),
        "underway": underway(view.figures.log.underway),
        "functions": functions(view.figures.log.functions),
        "last": [compilation(one) for one in view.figures.log.compilations[-LAST:]],
        "breaks": [
            {"reason": one.reason, "count": one.count} for one in view.figures.log.breaks[:BREAKS]
        ],
        "varying": [_varying(one) for one in view.figures.log.varying[:VARYING]],
    }


def progress(activity: OpenActivity | None) -> dict[str, Any] | None:
    """How far the activity in progress is, where PyTorch counts what it does."""
    counted = activity.counted if activity else None
    return None if counted is None else asdict(counted)


def _estimate(view: RankView) -> dict[str, Any] | None:
    """How long what is in progress may take yet; ``None`` where nothing like it is known."""
    known = view.estimate
    if known is None or not view.judgement.compiling:
        return None
    return {
        "of": known.of,
        "so_far_seconds": known.so_far_seconds,
        "last_seconds": known.last_seconds,
        "left_seconds": known.left_seconds,
        "low": known.low,
        "high": known.high,
        "phases": dict(known.phases),
        "precedents": known.precedents,
        "of_rank": known.of_rank,
    }


def _memory(memory: Memory | None) -> dict[str, Any] | None:
    return None if memory is None else {"at": memory.at, **memory.bytes}


def _caches(compile: Compile) -> dict[str, Any]:
    """Hits and misses of the cache of whole graphs, and of each cache."""
    hits, misses = compile.cache_hits, compile.cache_misses
    if hits is None or misses is None:
        return {"cache_hits": None, "cache_misses": None, "caches": None}
    return {
        "cache_hits": hits[_FX],
        "cache_misses": misses[_FX],
        "caches": {name: {"hits": hits[name], "misses": misses[name]} for name in CACHES},
    }


def compilation(one: Compilation) -> dict[str, Any]:
    """One compilation as JSON."""
    return {
        "id": one.id,
        "kind": one.kind,
        "seconds": one.seconds,
        "reason": one.reason,
        "plain": plain(one.reason, one.category),
        "category": one.category,
        "advice": advice(one.category, one.kind),
        "called": called(one.name, one.file, one.line),
        "name": one.name,
        "file": one.file,
        "line": one.line,
        "cache": one.cache,
        "failure": one.failure,
        "cudagraph_skip": one.cudagraph_skip,
    }


def _varying(one: VaryingDim) -> dict[str, Any]:
    return {
        "tensor": one.tensor,
        "dim": one.dim,
        "values": list(one.values),
        "complete": one.complete,
        "smallest": one.lowest,
        "largest": one.highest,
        "count": one.count,
        "seconds": one.seconds,
        "step_seconds_before": one.before_seconds,
        "step_seconds_since": since_seconds(one),
        "words": remedy(one),
        "name": one.name,
        "file": one.file,
        "line": one.line,
    }


def underway(what: Underway | None) -> dict[str, Any] | None:
    """What is being compiled now, as far as that is known."""
    if what is None:
        return None
    return {
        "kind": what.kind,
        "called": called(what.name, what.file, what.line),
        "name": what.name,
        "file": what.file,
        "line": what.line,
        "backward": what.backward,
        "reason": what.reason,
        "plain": plain(what.reason, what.category),
        "category": what.category,
        "advice": advice(what.category, what.kind),
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
        "out_of_memory": view.oom_killed,
        "ended_together": ended_together,
    }


def _batches(steps: Steps) -> dict[str, Any] | None:
    """What the DataLoaders gave, and how long the loop waited for it: without any, nobody knows."""
    if steps.batches is None:
        return None
    waited = steps.batch_wait_seconds if steps.batches else None
    return {"count": steps.batches, "wait_seconds": waited}


def _long_step(one: LongStep) -> dict[str, Any]:
    """A step that came far later than usual and did not compile, and what is known of it."""
    return {
        "step": one.step,
        "seconds": one.seconds,
        "usual_seconds": one.usual_seconds,
        "checkpoint_seconds": one.saving_seconds,
        "evaluation_seconds": one.evaluating_seconds,
        "data_seconds": one.data_seconds,
        "batches": one.batches,
        "evaluation": is_evaluation(one) or one.evaluating_seconds > 0,
        "words": words(one),
    }


def _pauses(view: RankView) -> dict[str, Any]:
    """What the training waited for that is no compilation."""
    pauses, batches = view.figures.pauses, _batches(view.figures.steps)
    return {
        "data_seconds": batches["wait_seconds"] if batches else None,
        "checkpoint_seconds": pauses.saving_seconds,
        "saving_since": pauses.saving_since,
        "evaluations": pauses.evaluations,
        "evaluation_seconds": pauses.evaluating_seconds,
        "evaluating_since": pauses.evaluating_since,
    }


def _warmup(warmups: Warmups) -> dict[str, Any]:
    return {
        "ended": warmups.latest is not None,
        **warmup_span(warmups.latest),
        "count": warmups.count,
        "first": None if warmups.first is None else warmup_span(warmups.first),
    }


def warmup_span(span: WarmupSpan | None) -> dict[str, Any]:
    """How long a warm-up was; each is null where it has not ended."""
    if span is None:
        return {"ended_at": None, "seconds": None, "steps": None}
    return {"ended_at": span.ended_at, "seconds": span.seconds, "steps": span.steps}


def _step_seconds(steps: Steps) -> dict[str, float | int | None]:
    return {
        "first": steps.first_seconds,
        "first_at": steps.first_at,
        "last": steps.last_seconds,
        "median": steps.clean.median,
        "p99": steps.clean.p99,
        "typical": steps.clean.typical,
        "median_low": steps.clean.median_low,
        "median_high": steps.clean.median_high,
        "clean_count": steps.clean.count,
        "clean_seconds": steps.clean.sum_seconds,
    }


def _cost(steps: Steps) -> dict[str, float | int | None]:
    """What the compiler cost so far: how much longer than clean steps the touched ones took."""
    return {
        "first_step_seconds": steps.first_seconds,
        "steady_step_seconds": steps.clean.median,
        "beyond_steady_seconds": beyond_steady_seconds(steps),
        "steps_touched": steps.touched.count,
    }


def _baseline(figures: Figures) -> dict[str, float | int | None] | None:
    """The first steps, where they were eager on purpose, and what compiling brought since."""
    baseline, known = figures.baseline, gain(figures)
    if baseline is None:
        return None
    return {
        "steps": baseline.steps,
        "seconds": baseline.seconds,
        "speed_up": known.speed_up if known else None,
        "break_even_steps": known.break_even_steps if known else None,
        "paid_back_at_step": known.paid_back_at if known else None,
    }


def _worth(view: RankView) -> dict[str, Any] | None:
    """What a step is worth, and what its clean steps come to; ``None`` where nobody said."""
    worth, mfu = view.figures.worth, view.utilization
    if worth == Worth():
        return None
    seconds = view.figures.steps.clean.typical
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
