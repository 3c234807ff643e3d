"""Samples of a Prometheus server as a Snapshot of runs on any number of hosts. Pure.

Each daemon has judged its own ranks; their states are copied, never judged again. Each series
becomes a figure; a figure without a series is ``None``. Times are wall-clock times.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import convert
from msgspec.structs import replace

from warmwatch.shared.states import CONDITIONS, ENDED, LIMITS, State, least_advanced
from warmwatch.shared.values import MEMORY, MOST_RANKS, PROGRESS
from warmwatch.shared.verdict import Judgement
from warmwatch_monitor.figures.compile import Compile, Counted, OpenActivity, Workers, with_totals
from warmwatch_monitor.figures.machine import SourceHealth
from warmwatch_monitor.figures.rank import LimitedBy, Slower
from warmwatch_monitor.figures.training import BACKENDS, Pauses, Warmup, WarmupSpan
from warmwatch_monitor.model.causes import with_laggard
from warmwatch_monitor.model.figures import (
    Agent,
    Figures,
    Lengths,
    Life,
    Memory,
    Progress,
    Steps,
    Stretch,
    Warmups,
    Who,
)
from warmwatch_monitor.model.machine import GpuReading, Sample
from warmwatch_monitor.model.snapshot import RankView, RunView, Snapshot
from warmwatch_monitor.sources.fleet.samples import (
    GPU_NAMES,
    RankSeries,
    add_to_device,
    add_to_rank,
    latest,
    on_one_clock,
    read,
    whole,
)

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
        **{**values, "count": values["count"] or 0, "last_second": values["recent"]},
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


_SECOND = 10**9
_TOGETHER_SECONDS = 10.0


def assemble(samples: Iterable[Sample], epoch: float) -> Snapshot:
    ranks: dict[tuple[str, int], dict[str, RankSeries]] = {}
    devices: dict[str, dict[str, float | str]] = {}
    for sample in on_one_clock(samples):
        if sample.name.startswith("gpu_"):
            add_to_device(devices, sample)
        else:
            add_to_rank(ranks, sample)
    now_ns = round(epoch * _SECOND)
    gpus = {uuid: gpu(uuid, device, now_ns) for uuid, device in devices.items()}
    views = [
        _view(who, latest(by_instance), gpus, epoch) for who, by_instance in sorted(ranks.items())
    ]
    health = SourceHealth(source="prometheus", up=True, last_success=epoch)
    return Snapshot(
        epoch=epoch,
        now_ns=now_ns,
        runs=_runs([view for view in views if view is not None]),
        gpus=tuple(gpus[uuid] for uuid in sorted(gpus)),
        sources=(health,),
    )


def _runs(views: Iterable[RankView]) -> tuple[RunView, ...]:
    by_name: dict[str, list[RankView]] = {}
    for view in views:
        by_name.setdefault(view.run, []).append(view)
    return tuple(
        RunView(
            run=name,
            state=least_advanced(view.judgement.state for view in views),
            ranks=with_laggard(sorted(_explained(views), key=lambda view: view.rank)),
            ended_together=_ended_together(views),
        )
        for name, views in sorted(by_name.items())
    )


def _explained(views: Sequence[RankView]) -> Iterator[RankView]:
    """Drop ``silent`` if another rank compiles: a daemon sees only the ranks of its own host."""
    compiling = any(view.living and view.judgement.compiling for view in views)
    for view in views:
        judgement = view.judgement
        if compiling and "silent" in judgement.conditions:
            left = tuple(name for name in judgement.conditions if name != "silent")
            yield replace(view, judgement=judgement._replace(conditions=left))
        else:
            yield view


def _ended_together(views: Sequence[RankView]) -> bool | None:
    """As ``runs.ended_together`` for one host, from the times at which the states began."""
    gone = [view for view in views if not view.living]
    if len(views) < 2 or not gone:
        return None
    if len(gone) < len(views):
        return False
    ends = [view.figures.progress.state_since for view in gone]
    values = [end for end in ends if end is not None]
    return max(values) - min(values) <= _TOGETHER_SECONDS if len(values) == len(ends) else None


def _view(
    who: tuple[str, int], series: RankSeries, gpus: Mapping[str, GpuReading], epoch: float
) -> RankView | None:
    """``None`` without a state: a daemon of another version, or an incomplete scrape."""
    judgement = _judgement(series)
    if judgement is None:
        return None
    return RankView(
        figures=figures(who, series, judgement, epoch),
        judgement=judgement,
        gpus=tuple(gpus[uuid] for uuid in sorted(series.gpus) if uuid in gpus),
        oom_killed=flag(series.value("oom_killed")),
        slower=_slower(series) if "slower" in judgement.conditions else None,
        limited_by=_limited_by(series),
    )


def _limited_by(series: RankSeries) -> LimitedBy | None:
    """What limits its speed; no series has the evidence."""
    names = series.chosen("limited_by")
    if len(names) != 1 or names[0] not in LIMITS:
        return None
    return LimitedBy(verdict=names[0], share=series.value("limited_share_ratio"))


def _slower(series: RankSeries) -> Slower | None:
    """How a rank is slower than before; no series has the step or the causes."""
    ratio, before = series.value("slower_ratio"), series.value("slower_before_seconds")
    if not ratio or not before:
        return None
    return Slower(seconds=ratio * before, ratio=ratio, before=before, causes=None)


def _judgement(series: RankSeries) -> Judgement | None:
    states = series.chosen("state")
    if len(states) != 1 or states[0] not in {state.value for state in State}:
        return None
    phases = series.chosen("compile_phase")
    return Judgement(
        state=State(states[0]),
        since_ns=None,  # of the local monotonic clock; the figures have the wall-clock time
        compiling="compile_start_timestamp_seconds" in series.single,
        phase=phases[0] if phases else None,
        clean_steps=series.count("clean_steps") or 0,
        conditions=tuple(name for name in CONDITIONS if name in series.chosen("condition")),
    )


def gpu(uuid: str, device: Mapping[str, float | str], now_ns: int) -> GpuReading:
    values = {name: device[name] for name in GPU_NAMES if isinstance(device.get(name), float)}
    return convert(
        {**values, "uuid": uuid, "index": int(device["index"]), "at_ns": now_ns}, GpuReading
    )
