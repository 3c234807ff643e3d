"""A rank's figures from metrics; ``None`` without a series. Pure."""

from __future__ import annotations

import math
from typing import Any

from warmwatch.shared.states import ENDED, State
from warmwatch.shared.values import MOST_RANKS
from warmwatch.shared.verdict import Judgement
from warmwatch_monitor.figures.compile import Compile, OpenActivity, with_totals
from warmwatch_monitor.figures.training import Warmup
from warmwatch_monitor.model import (
    BACKENDS,
    MEMORY,
    PROGRESS,
    Agent,
    Counted,
    Figures,
    Lengths,
    Life,
    Memory,
    Pauses,
    Progress,
    Steps,
    Stretch,
    Warmups,
    WarmupSpan,
    Who,
    Workers,
)
from warmwatch_monitor.sources.fleet.samples import RankSeries, read, whole

_WARM_STEPS = 3  # default for a daemon that does not export it


def figures(
    who: tuple[str, int], series: RankSeries, judgement: Judgement, epoch: float
) -> Figures:
    compile = _compile(series, judgement, epoch)
    # hook points of the agent -> what is absent if its torch lacks them
    counts = {"compilations": compile.graphs, "recompile_limit": compile.fallbacks}
    attached = series.value("attach_timestamp_seconds")
    stepped = series.value("last_step_timestamp_seconds")
    quiet_since = max(sign or 0.0 for sign in (attached, stepped, compile.last_end_at))
    opened = _open_seconds(series, judgement, stepped, epoch)
    return Figures(
        who=_who(who, series, attached),
        steps=_steps(series),
        compile=compile,
        warmups=_warmups(series, judgement),
        progress=Progress(
            **read(Progress, series),
            quiet_seconds=max(0.0, epoch - quiet_since),
            compiler_quiet_seconds=_ago(compile.last_end_at, epoch),
            batch_quiet_seconds=_ago(series.value("last_batch_timestamp_seconds"), epoch),
            open_seconds=opened,
            stretch=_stretch(series, judgement, epoch),
        ),
        life=_life(series, judgement),
        agent=Agent(
            version=series.info.get("agent") or None,
            missing=tuple(point for point, number in counts.items() if number is None),
        ),
        pauses=_pauses(series, epoch),
        workers=_workers(series),
        memory=_memory(series),
    )


def _steps(series: RankSeries) -> Steps:
    values = read(Steps, series)
    return Steps(
        **{**values, "count": values["count"] or 0},
        clean=Lengths(
            count=(series.counts("step_seconds_count", ("clean",)) or {}).get("clean"),
            sum_seconds=series.values("step_seconds_sum", ("clean",)).get("clean"),
            reported=series.value("steady_step_seconds"),
        ),
    )


def _pauses(series: RankSeries, epoch: float) -> Pauses:
    values = read(Pauses, series)
    return Pauses(
        **values,
        **{
            f"{name}_for_seconds": max(0.0, epoch - since)
            for name in ("saving", "evaluating", "between_cells")
            if (since := values[f"{name}_since"]) is not None
        },
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
    amounts = series.values("collective_timeout_seconds", BACKENDS)
    if not amounts:
        return {}
    backend, seconds = min(amounts.items(), key=lambda item: item[1])
    return {"collective_timeout_seconds": seconds, "collective_backend": backend}


def _called(run: str) -> tuple[str, str | None]:
    """A run's own name and its owner, from its public name (``Owner.shown``).

    No owner's name has an ``@``, and no run whose own name has one is shown without its owner.
    """
    name, _, owner = run.rpartition("@")
    return (name, owner) if name and owner else (run, None)


def _compile(series: RankSeries, judgement: Judgement, epoch: float) -> Compile:
    values = read(Compile, series)
    began = series.value("compile_start_timestamp_seconds")
    by_name = ("compilations_by_kind", "recompiles_by_category", "fallbacks_by_cause")
    totals = with_totals(*(values.pop(name) for name in by_name))
    return Compile(
        **values,
        **totals,
        begun=values["last_end_at"] is not None or judgement.compiling,
        open=None
        if began is None
        else OpenActivity(
            began_at=began,
            seconds=max(0.0, epoch - began),
            phase=judgement.phase,
            counted=_counted(series),
        ),
        seconds=math.fsum(values["phase_seconds"].values()),
    )


def _counted(series: RankSeries) -> Counted | None:
    done = series.counts("compile_progress_done", PROGRESS) or {}
    planned = series.counts("compile_progress_planned", PROGRESS) or {}
    both = ((work, done.get(work), planned.get(work)) for work in PROGRESS)
    rows = [(work, so_far, all_) for work, so_far, all_ in both if so_far is not None and all_]
    return Counted(of=rows[0][0], done=rows[0][1], total=rows[0][2]) if rows else None


def _memory(series: RankSeries) -> Memory | None:
    held = series.complete("torch_memory_bytes", MEMORY)
    return Memory(bytes=held) if held else None


def _warmups(series: RankSeries, judgement: Judgement) -> Warmups:
    needed = whole(series.info.get("warm_steps", "")) or _WARM_STEPS
    steps, span = series.count("steps_total"), read(Warmup, series)
    latest = None if None in span.values() else WarmupSpan(**span)
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
        signal=series.end.get("signal") or None,
        exception=series.end.get("exception") or None,
    )


def flag(value: float | None) -> bool | None:
    return None if value is None else bool(value)


def _ago(moment: float | None, epoch: float) -> float | None:
    return None if moment is None else epoch - moment


def _workers(series: RankSeries) -> Workers | None:
    counts = series.complete("compile_workers", ("busy", "idle"))
    return Workers(**counts) if counts else None
