"""A rank's figures from metrics; ``None`` without a series. Pure."""

from __future__ import annotations

import math
from typing import Any

from warmwatch.shared.states import ENDED, State
from warmwatch.shared.values import MOST_RANKS
from warmwatch.shared.verdict import Judgement
from warmwatch_monitor.fleet.samples import RankSeries, whole
from warmwatch_monitor.model import (
    BACKENDS,
    CACHES,
    DISABLED,
    KINDS,
    MEMORY,
    PHASES,
    PROGRESS,
    REASONS,
    Agent,
    Compile,
    Counted,
    Figures,
    Lengths,
    Life,
    Memory,
    OpenActivity,
    Pauses,
    Progress,
    Steps,
    Stretch,
    Warmups,
    WarmupSpan,
    Who,
    Workers,
)

_WARM_STEPS = 3  # default for a daemon that does not export it
# a hook point of the agent -> the series that is absent if its torch lacks it
_HOOK_POINTS = {"compilations": "graphs_total", "recompile_limit": "compile_fallbacks_total"}


def figures(
    who: tuple[str, int], series: RankSeries, judgement: Judgement, epoch: float
) -> Figures:
    compile = _compile(series, judgement, epoch)
    attached = series.value("attach_timestamp_seconds")
    stepped = series.value("last_step_timestamp_seconds")
    quiet_since = max(sign or 0.0 for sign in (attached, stepped, compile.last_end_at))
    opened = _open_seconds(series, judgement, stepped, epoch)
    return Figures(
        who=_who(who, series, attached),
        steps=_steps(series, stepped),
        compile=compile,
        warmups=_warmups(series, judgement),
        progress=Progress(
            quiet_seconds=max(0.0, epoch - quiet_since),
            state_since=series.value("state_start_timestamp_seconds"),
            compiler_quiet_seconds=_ago(compile.last_end_at, epoch),
            stall_limit_seconds=series.value("stall_limit_seconds"),
            batch_quiet_seconds=_ago(series.value("last_batch_timestamp_seconds"), epoch),
            open_seconds=opened,
            stretch=_stretch(series, judgement, epoch),
            compile_limit_seconds=series.value("compile_limit_seconds"),
            last_step_age_seconds=series.value("last_step_age_seconds"),
        ),
        life=_life(series, judgement),
        agent=Agent(
            version=series.info.get("agent") or None,
            missing=tuple(
                point for point, name in _HOOK_POINTS.items() if name not in series.single
            ),
        ),
        pauses=_pauses(series, epoch),
        workers=_workers(series),
        memory=_memory(series),
    )


def _steps(series: RankSeries, stepped: float | None) -> Steps:
    return Steps(
        count=series.count("steps_total") or 0,
        last_at=stepped,
        recent_seconds=series.value("recent_step_seconds"),
        clean=Lengths(
            count=(series.counts("step_seconds_count", ("clean",)) or {}).get("clean"),
            sum_seconds=series.values("step_seconds_sum", ("clean",)).get("clean"),
            reported=series.value("steady_step_seconds"),
        ),
        tokens=series.count("tokens_total"),
        samples=series.count("samples_total"),
        batches=series.count("batches_total"),
        batch_wait_seconds=series.value("data_wait_seconds_total"),
        last_batch_at=series.value("last_batch_timestamp_seconds"),
    )


def _pauses(series: RankSeries, epoch: float) -> Pauses:
    since = series.value("checkpoint_start_timestamp_seconds")
    evaluating = series.value("evaluation_start_timestamp_seconds")
    ended = series.value("evaluations_total")
    cells = series.value("between_cells_start_timestamp_seconds")
    return Pauses(
        between_cells_since=cells,
        between_cells_for_seconds=None if cells is None else max(0.0, epoch - cells),
        evaluating_seconds=series.value("evaluation_seconds_total"),
        evaluating_since=evaluating,
        evaluating_for_seconds=None if evaluating is None else max(0.0, epoch - evaluating),
        evaluations=None if ended is None else int(ended),
        saving_seconds=series.value("checkpoint_seconds_total"),
        saving_since=since,
        saving_for_seconds=None if since is None else max(0.0, epoch - since),
    )


def _who(who: tuple[str, int], series: RankSeries, attached: float | None) -> Who:
    name, owner = _called(who[0])
    return Who(
        run=who[0],
        rank=who[1],
        name=name,
        owner=owner,
        world_size=_world_size(series),
        attached_at=attached,
        host=series.info.get("host") or series.instance or None,
        launcher=series.info.get("launcher") or None,
        python=series.info.get("python") or None,
        torch=series.info.get("torch") or None,
        reported_gpus=tuple(sorted(series.gpus)),
        **_collective(series),
    )


def _world_size(series: RankSeries) -> int | None:
    size = series.count("world_size")
    return size if size is not None and 0 <= size <= MOST_RANKS else None


def _collective(series: RankSeries) -> dict[str, Any]:
    found = series.values("collective_timeout_seconds", BACKENDS)
    if not found:
        return {}
    backend, seconds = min(found.items(), key=lambda one: one[1])
    return {"collective_timeout_seconds": seconds, "collective_backend": backend}


def _called(run: str) -> tuple[str, str | None]:
    """A run's own name and its owner, from its public name (``Owner.shown``).

    No owner's name has an ``@``, and no run whose own name has one is shown without its owner.
    """
    name, _, owner = run.rpartition("@")
    return (name, owner) if name and owner else (run, None)


def _compile(series: RankSeries, judgement: Judgement, epoch: float) -> Compile:
    ended = series.value("compile_end_timestamp_seconds")
    began = series.value("compile_start_timestamp_seconds")
    phase_seconds = series.values("compile_seconds_total", PHASES)
    return Compile(
        begun=ended is not None or judgement.compiling,
        open=None
        if began is None
        else OpenActivity(
            began_at=began,
            seconds=max(0.0, epoch - began),
            phase=judgement.phase,
            counted=_counted(series),
        ),
        last_end_at=ended,
        seconds=math.fsum(phase_seconds.values()),
        phase_seconds=phase_seconds,
        compilations=series.counts("compilations_total", KINDS),
        recompiles=series.counts("recompiles_total", REASONS),
        graphs=series.count("graphs_total"),
        graph_breaks=series.count("graph_breaks_total"),
        failures=series.count("compile_failures_total"),
        recompiles_after_warm=series.count("recompiles_after_warm_total"),
        fallbacks=series.count("compile_fallbacks_total"),
        wrappers=series.count("compile_wrappers_total"),
        disabled=next((by for by in series.chosen("compile_disabled") if by in DISABLED), None),
        cudagraph_skips=series.count("cudagraph_skips_total"),
        cache_hits=series.complete("compile_cache_hits_total", CACHES),
        cache_misses=series.complete("compile_cache_misses_total", CACHES),
    )


def _counted(series: RankSeries) -> Counted | None:
    done = series.counts("compile_progress_done", PROGRESS) or {}
    planned = series.counts("compile_progress_planned", PROGRESS) or {}
    both = ((of, done.get(of), planned.get(of)) for of in PROGRESS)
    known = [(of, so_far, all_) for of, so_far, all_ in both if so_far is not None and all_]
    return Counted(of=known[0][0], done=known[0][1], total=known[0][2]) if known else None


def _memory(series: RankSeries) -> Memory | None:
    held = series.complete("torch_memory_bytes", MEMORY)
    return Memory(bytes=held) if held else None


def _warmups(series: RankSeries, judgement: Judgement) -> Warmups:
    needed = whole(series.info.get("warm_steps", "")) or _WARM_STEPS
    steps, ended = series.count("steps_total"), series.value("warmup_end_timestamp_seconds")
    seconds, taken = series.value("warmup_seconds"), series.count("warmup_steps")
    latest = None
    if ended is not None and seconds is not None and taken is not None:
        latest = WarmupSpan(ended_at=ended, seconds=seconds, steps=taken)
    return Warmups(
        clean_steps_needed=needed,
        latest=latest,
        warm_at_step=None if steps is None else max(0, steps - judgement.clean_steps) + needed,
    )


def _open_seconds(
    series: RankSeries, judgement: Judgement, stepped: float | None, epoch: float
) -> float | None:
    """Like ``open_since_ns`` of the verdict, as far as it is known: of a compiling state."""
    began = series.value("state_start_timestamp_seconds")
    active = series.value("compile_start_timestamp_seconds")
    if not judgement.compiling or began is None or active is None:
        return None
    return max(0.0, epoch - min(active, max(began, stepped or 0.0)))


def _stretch(series: RankSeries, judgement: Judgement, epoch: float) -> Stretch | None:
    began = series.value("compiling_start_timestamp_seconds")
    if began is None or judgement.state in ENDED:
        return None
    return Stretch(began_at=began, seconds=max(0.0, epoch - began))


def _life(series: RankSeries, judgement: Judgement) -> Life:
    how, code = series.end.get("end"), series.end.get("exit_code") or ""
    return Life(
        alive=judgement.state not in ENDED,
        end=None if how == State.LOST.value else how,
        exit_code=whole(code),
    )


def flag(value: float | None) -> bool | None:
    return None if value is None else bool(value)


def _ago(moment: float | None, epoch: float) -> float | None:
    return None if moment is None else epoch - moment


def _workers(series: RankSeries) -> Workers | None:
    counts = series.complete("compile_workers", ("busy", "idle"))
    return Workers(**counts) if counts else None
