"""Samples of a Prometheus server as a Snapshot of runs on any number of hosts. Pure.

Each daemon has judged its own ranks; their states are copied, never judged again. Each series
becomes a figure; a figure without a series is ``None``. Times are wall-clock times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import convert
from msgspec.structs import replace

from warmwatch.shared.states import CONDITIONS, LIMITS, State, least_advanced
from warmwatch.shared.verdict import Judgement
from warmwatch_monitor.model import (
    GpuReading,
    LimitedBy,
    RankView,
    RunView,
    Sample,
    Slower,
    Snapshot,
    SourceHealth,
    with_laggard,
)
from warmwatch_monitor.sources.fleet.figures import figures, flag
from warmwatch_monitor.sources.fleet.samples import (
    GPU_NAMES,
    RankSeries,
    add_to_device,
    add_to_rank,
    latest,
    on_one_clock,
)

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
