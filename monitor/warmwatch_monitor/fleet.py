"""Samples of a Prometheus to a Snapshot: runs over any number of hosts. Pure.

Each daemon has judged its own ranks; their states are taken over, never judged anew. The facts that
sentences speak of are put back into a slot as far as there are series of them; times are those of
the wall clock, in nanoseconds. What no series tells stays unknown.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from warmwatch.record import (
    BINS,
    BOUNDS_NS,
    CACHES,
    CATEGORIES,
    KINDS,
    PHASES,
    CompileCounts,
    Header,
    Identity,
    Slot,
    StepCounts,
    Warmup,
)
from warmwatch.verdict import CONDITIONS, STALL_GAPS, Judgement, State, least_advanced
from warmwatch_monitor.model import (
    GpuReading,
    ProcessReading,
    RankView,
    RecordReading,
    RunView,
    Sample,
    Snapshot,
    SourceHealth,
)

_SECOND = 10**9
_CYCLE = 1000
# a seam of the agent -> the series that is absent where its torch does not have it
_SEAMS = {"compilations": "graphs_total", "recompile_limit": "compile_fallbacks_total"}


@dataclass(slots=True)
class _Told:
    """What one daemon said of one rank: values by name, and by name and label value."""

    instance: str
    single: dict[str, float] = field(default_factory=dict)
    labelled: dict[tuple[str, str], float] = field(default_factory=dict)
    info: Mapping[str, str] = field(default_factory=dict)
    gpus: set[str] = field(default_factory=set)

    def ns(self, name: str) -> int:
        """Seconds of a series as nanoseconds; 0, "not yet", where there is none."""
        return round(self.single.get(name, 0.0) * _SECOND)

    def count(self, name: str) -> int:
        return round(self.single.get(name, 0.0))

    def counts(self, name: str, values: tuple[str, ...], scale: int = 1) -> tuple[int, ...]:
        return tuple(round(self.labelled.get((name, one), 0.0) * scale) for one in values)

    def chosen(self, name: str) -> tuple[str, ...]:
        return tuple(value for (known, value), on in self.labelled.items() if known == name and on)


def assemble(samples: Iterable[Sample], epoch: float) -> Snapshot:
    """All runs that the samples speak of, as they were at ``epoch``."""
    told: dict[tuple[str, int], dict[str, _Told]] = {}
    devices: dict[str, dict[str, float | str]] = {}
    for sample in samples:
        if sample.name.startswith("gpu_"):
            device = devices.setdefault(sample.labels["uuid"], {"index": sample.labels["gpu"]})
            device[sample.name.removeprefix("gpu_")] = sample.value
        else:
            _sort(told, sample)
    now_ns = round(epoch * _SECOND)
    gpus = {uuid: _gpu(uuid, device, now_ns) for uuid, device in devices.items()}
    views = [_view(who, _speaker(said), gpus, now_ns) for who, said in sorted(told.items())]
    health = SourceHealth(source="prometheus", up=True, last_success=epoch)
    return Snapshot(
        epoch=epoch,
        now_ns=now_ns,
        runs=_runs([view for view in views if view is not None]),
        gpus=tuple(gpus[uuid] for uuid in sorted(gpus)),
        sources=(health,),
    )


def _sort(told: dict[tuple[str, int], dict[str, _Told]], sample: Sample) -> None:
    labels = sample.labels
    rank = labels.get("rank", "")
    if "run" not in labels or not rank.isdecimal():
        return
    instance = labels.get("instance", "")
    said = told.setdefault((labels["run"], int(rank)), {})
    one = said.setdefault(instance, _Told(instance))
    if sample.name == "run_info":
        one.info = labels
    elif sample.name == "rank_gpu_info":
        one.gpus.add(labels["uuid"])
    elif own := [labels[name] for name in _OWN_LABELS if name in labels]:
        one.labelled[sample.name, own[0]] = sample.value
    else:
        one.single[sample.name] = sample.value


_OWN_LABELS = ("state", "phase", "condition", "kind", "category", "cache")


def _speaker(said: Mapping[str, _Told]) -> _Told:
    """Of the daemons that know the rank the one where it attached last: a restart moves it."""
    return max(said.values(), key=lambda one: (one.ns("attach_timestamp_seconds"), one.instance))


def _runs(views: Iterable[RankView]) -> tuple[RunView, ...]:
    by_name: dict[str, list[RankView]] = {}
    for view in views:
        by_name.setdefault(view.run, []).append(view)
    return tuple(
        RunView(
            run=name,
            state=least_advanced(view.judgement.state for view in views),
            ranks=tuple(sorted(views, key=lambda view: view.rank)),
        )
        for name, views in sorted(by_name.items())
    )


def _view(
    who: tuple[str, int], told: _Told, gpus: Mapping[str, GpuReading], now_ns: int
) -> RankView | None:
    """``None`` where no state is told: a daemon of another version, or half a scrape."""
    judgement = _judgement(told)
    if judgement is None:
        return None
    slot = Slot(
        header=Header(
            warm_steps=int(told.info.get("warm_steps") or 3),
            attached_ns=told.ns("attach_timestamp_seconds"),
            attached_epoch_ns=told.ns("attach_timestamp_seconds"),
        ),
        identity=_identity(who, told),
        steps=StepCounts(
            steps=told.count("steps_total"), last_step_ns=told.ns("last_step_timestamp_seconds")
        ),
        compile=_compile(told, judgement, now_ns),
        clean_bins=_bins(told.single.get("steady_step_seconds")),
        compile_bins=(0,) * BINS,
    )
    living = judgement.state not in (State.FINISHED, State.FAILED, State.LOST)
    return RankView(
        reading=RecordReading(folder=told.instance, slot=slot, alive=living),
        judgement=judgement,
        process=_process(told),
        gpus=tuple(gpus[uuid] for uuid in sorted(told.gpus) if uuid in gpus),
    )


def _judgement(told: _Told) -> Judgement | None:
    states = told.chosen("state")
    if len(states) != 1 or states[0] not in {state.value for state in State}:
        return None
    phases = told.chosen("compile_phase")
    began = told.ns("state_start_timestamp_seconds")
    return Judgement(
        state=State(states[0]),
        since_ns=began or None,
        compiling="compile_start_timestamp_seconds" in told.single,
        phase=phases[0] if phases else None,
        clean_steps=told.count("clean_steps"),
        conditions=tuple(name for name in CONDITIONS if name in told.chosen("condition")),
    )


def _identity(who: tuple[str, int], told: _Told) -> Identity:
    return Identity(
        run=who[0],
        rank=who[1],
        world_size=told.count("world_size") or None,
        launcher=told.info.get("launcher", ""),
        host=told.info.get("host") or told.instance,
        torch=told.info.get("torch", ""),
        python=told.info.get("python", ""),
        missing=tuple(seam for seam, name in _SEAMS.items() if name not in told.single),
        gpus=tuple(sorted(told.gpus)),
    )


def _compile(told: _Told, judgement: Judgement, now_ns: int) -> CompileCounts:
    steps, ended_ns = told.count("steps_total"), told.ns("warmup_end_timestamp_seconds")
    phase = judgement.phase
    return CompileCounts(
        begun=bool(told.ns("compile_end_timestamp_seconds") or judgement.compiling),
        activities_seen=int(not judgement.compiling),
        active_since_ns=told.ns("compile_start_timestamp_seconds"),
        active_phase=1 + PHASES.index(phase) if phase in PHASES else 0,
        accounted_ns=now_ns,  # the series hold the activity in progress already
        last_end_ns=told.ns("compile_end_timestamp_seconds"),
        clean_after=max(0, steps - judgement.clean_steps),
        longest_rest_ns=told.ns("stall_limit_seconds") // STALL_GAPS,
        episode_began_ns=judgement.since_ns or 0,
        warmups=int(bool(ended_ns)),
        last_warmup=Warmup(
            began_ns=ended_ns - told.ns("warmup_seconds"),
            ended_ns=ended_ns,
            warm_ns=judgement.since_ns or 0,
            steps=told.count("warmup_steps"),
        ),
        graphs=told.count("graphs_total"),
        graph_breaks=told.count("graph_breaks_total"),
        failures=told.count("compile_failures_total"),
        fallbacks=told.count("compile_fallbacks_total"),
        recompiles_after_warm=told.count("recompiles_after_warm_total"),
        phase_ns=told.counts("compile_seconds_total", PHASES, _SECOND),
        compilations=told.counts("compilations_total", KINDS),
        recompiles=told.counts("recompiles_total", CATEGORIES),
        cache_hits=told.counts("compile_cache_hits_total", CACHES),
        cache_misses=told.counts("compile_cache_misses_total", CACHES),
    )


def _bins(median_seconds: float | None) -> tuple[int, ...]:
    """A histogram whose median is the one given: all that the series tells of it."""
    counts = [0] * BINS
    if median_seconds is None:
        return tuple(counts)
    ns = median_seconds * _SECOND
    at = min(max(1, bisect_left(BOUNDS_NS, ns)), BINS - 2)
    share = (ns - BOUNDS_NS[at - 1]) / (BOUNDS_NS[at] - BOUNDS_NS[at - 1])
    counts[at] = _CYCLE
    counts[at - 1 if share < 0.5 else at + 1] += round(_CYCLE * abs(1 - 2 * share))
    return tuple(counts)


def _process(told: _Told) -> ProcessReading | None:
    """Only for its compile workers."""
    busy, idle = told.counts("compile_workers", ("busy", "idle"))
    if ("compile_workers", "busy") not in told.labelled:
        return None
    return ProcessReading(
        pid=0, cpu_seconds=0.0, resident_bytes=0, workers_busy=busy, workers_idle=idle
    )


def _gpu(uuid: str, device: Mapping[str, float | str], now_ns: int) -> GpuReading:
    def known(name: str) -> float | None:
        value = device.get(name)
        return value if isinstance(value, float) else None

    return GpuReading(
        uuid=uuid,
        index=int(device["index"]),
        at_ns=now_ns,
        utilization_ratio=known("utilization_ratio"),
        power_watts=known("power_watts"),
        power_limit_watts=known("power_limit_watts"),
        sm_active_ratio=known("sm_active_ratio"),
        tensor_active_ratio=known("tensor_active_ratio"),
    )
