"""Samples of a Prometheus to a Snapshot: runs over any number of hosts. Pure.

Each daemon has judged its own ranks; their states are taken over, never judged anew. What a series
tells becomes a figure; what none tells is ``None``. Times are those of the wall clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from warmwatch.verdict import CONDITIONS, ENDED, Judgement, State, least_advanced
from warmwatch_monitor.model import (
    BACKENDS,
    CACHES,
    CATEGORIES,
    DISABLED,
    KINDS,
    MEMORY,
    PHASES,
    PROGRESS,
    Agent,
    Compile,
    Counted,
    Figures,
    GpuReading,
    Lengths,
    Life,
    Memory,
    OpenActivity,
    Pauses,
    Progress,
    RankView,
    RunView,
    Sample,
    Snapshot,
    SourceHealth,
    Steps,
    Warmups,
    WarmupSpan,
    Who,
    Workers,
)

_SECOND = 10**9
_WARM_STEPS = 3  # of a daemon that does not say
_MOST_DIGITS = 9  # of a rank, an index, an exit code
_TOGETHER_SECONDS = 10.0  # what hosts' clocks may differ by included
# a seam of the agent -> the series that is absent where its torch does not have it
_SEAMS = {"compilations": "graphs_total", "recompile_limit": "compile_fallbacks_total"}
_OWN_LABELS = ("state", "phase", "condition", "kind", "category", "cache", "by", "of", "backend")


class _Telling(Struct):
    """What one daemon tells of one rank: values by name, and by name and label value."""

    instance: str
    single: dict[str, float] = field(default_factory=dict)
    labelled: dict[tuple[str, str], float] = field(default_factory=dict)
    info: Mapping[str, str] = field(default_factory=dict)
    end: Mapping[str, str] = field(default_factory=dict)
    gpus: set[str] = field(default_factory=set)

    def value(self, name: str) -> float | None:
        return self.single.get(name)

    def count(self, name: str) -> int | None:
        value = self.single.get(name)
        return None if value is None else round(value)

    def values(self, name: str, labels: Iterable[str]) -> dict[str, float]:
        found = ((label, self.labelled.get((name, label))) for label in labels)
        return {label: value for label, value in found if value is not None}

    def counts(self, name: str, labels: Iterable[str]) -> dict[str, int] | None:
        """``None`` where there is no such series at all."""
        return {label: round(v) for label, v in self.values(name, labels).items()} or None

    def complete(self, name: str, labels: Sequence[str]) -> dict[str, int] | None:
        """``None`` where one of them is missing."""
        found = self.counts(name, labels)
        return found if found and len(found) == len(labels) else None

    def chosen(self, name: str) -> tuple[str, ...]:
        """Of series of which each is 0 or 1 those that are 1."""
        return tuple(label for (known, label), on in self.labelled.items() if known == name and on)


def assemble(samples: Iterable[Sample], epoch: float) -> Snapshot:
    """All runs that the samples speak of, as they were at ``epoch``."""
    ranks: dict[tuple[str, int], dict[str, _Telling]] = {}
    devices: dict[str, dict[str, float | str]] = {}
    for sample in samples:
        if sample.name.startswith("gpu_"):
            _tell(devices, sample)
        else:
            _sort(ranks, sample)
    now_ns = round(epoch * _SECOND)
    gpus = {uuid: _gpu(uuid, device, now_ns) for uuid, device in devices.items()}
    views = [_view(who, _latest(tellings), gpus, epoch) for who, tellings in sorted(ranks.items())]
    health = SourceHealth(source="prometheus", up=True, last_success=epoch)
    return Snapshot(
        epoch=epoch,
        now_ns=now_ns,
        runs=_runs([view for view in views if view is not None]),
        gpus=tuple(gpus[uuid] for uuid in sorted(gpus)),
        sources=(health,),
    )


def _tell(devices: dict[str, dict[str, float | str]], sample: Sample) -> None:
    uuid, index = sample.labels.get("uuid"), sample.labels.get("gpu", "")
    if uuid is not None and _whole(index) is not None:
        device = devices.setdefault(uuid, {"index": index})
        device[sample.name.removeprefix("gpu_")] = sample.value


def _whole(text: str) -> int | None:
    """A number that stands in a label; ``None`` where that is none, or nothing counts so far."""
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None


def _sort(ranks: dict[tuple[str, int], dict[str, _Telling]], sample: Sample) -> None:
    labels = sample.labels
    rank = _whole(labels.get("rank", ""))
    if "run" not in labels or rank is None:
        return
    instance = labels.get("instance", "")
    tellings = ranks.setdefault((labels["run"], rank), {})
    telling = tellings.setdefault(instance, _Telling(instance))
    if sample.name == "run_info":
        telling.info = labels
    elif sample.name == "end_info":
        telling.end = labels
    elif sample.name == "rank_gpu_info":
        telling.gpus.update({labels["uuid"]} if "uuid" in labels else ())
    elif own := [labels[name] for name in _OWN_LABELS if name in labels]:
        telling.labelled[sample.name, own[0]] = sample.value
    else:
        telling.single[sample.name] = sample.value


def _latest(tellings: Mapping[str, _Telling]) -> _Telling:
    """Of the daemons that know the rank the one where it attached last: a restart moves it."""
    return max(
        tellings.values(), key=lambda t: (t.value("attach_timestamp_seconds") or 0.0, t.instance)
    )


def _runs(views: Iterable[RankView]) -> tuple[RunView, ...]:
    by_name: dict[str, list[RankView]] = {}
    for view in views:
        by_name.setdefault(view.run, []).append(view)
    return tuple(
        RunView(
            run=name,
            state=least_advanced(view.judgement.state for view in views),
            ranks=tuple(sorted(views, key=lambda view: view.rank)),
            ended_together=_ended_together(views),
        )
        for name, views in sorted(by_name.items())
    )


def _ended_together(views: Sequence[RankView]) -> bool | None:
    """As ``runs`` says of one host, by the moments at which the states began."""
    gone = [view for view in views if not view.living]
    if len(views) < 2 or not gone:
        return None
    if len(gone) < len(views):
        return False
    ends = [view.figures.progress.state_since for view in gone]
    known = [end for end in ends if end is not None]
    return max(known) - min(known) <= _TOGETHER_SECONDS if len(known) == len(ends) else None


def _view(
    who: tuple[str, int], telling: _Telling, gpus: Mapping[str, GpuReading], epoch: float
) -> RankView | None:
    """``None`` where no state is told: a daemon of another version, or half a scrape."""
    judgement = _judgement(telling)
    if judgement is None:
        return None
    return RankView(
        figures=_figures(who, telling, judgement, epoch),
        judgement=judgement,
        gpus=tuple(gpus[uuid] for uuid in sorted(telling.gpus) if uuid in gpus),
        oom_killed=_known(telling.value("oom_killed")),
    )


def _judgement(telling: _Telling) -> Judgement | None:
    states = telling.chosen("state")
    if len(states) != 1 or states[0] not in {state.value for state in State}:
        return None
    phases = telling.chosen("compile_phase")
    return Judgement(
        state=State(states[0]),
        since_ns=None,  # this clock's; the figures have the time of day
        compiling="compile_start_timestamp_seconds" in telling.single,
        phase=phases[0] if phases else None,
        clean_steps=telling.count("clean_steps") or 0,
        conditions=tuple(name for name in CONDITIONS if name in telling.chosen("condition")),
    )


def _figures(
    who: tuple[str, int], telling: _Telling, judgement: Judgement, epoch: float
) -> Figures:
    compile = _compile(telling, judgement, epoch)
    attached = telling.value("attach_timestamp_seconds")
    stepped = telling.value("last_step_timestamp_seconds")
    signs = (attached, stepped, compile.last_end_at)
    return Figures(
        who=_who(who, telling, attached),
        steps=Steps(
            count=telling.count("steps_total") or 0,
            last_at=stepped,
            clean=Lengths(median=telling.value("steady_step_seconds")),
            tokens=telling.count("tokens_total"),
            samples=telling.count("samples_total"),
            batches=telling.count("batches_total"),
            batch_wait_seconds=telling.value("data_wait_seconds_total"),
            last_batch_at=telling.value("last_batch_timestamp_seconds"),
        ),
        compile=compile,
        warmups=_warmups(telling, judgement),
        progress=Progress(
            quiet_seconds=max(0.0, epoch - max(sign or 0.0 for sign in signs)),
            state_since=telling.value("state_start_timestamp_seconds"),
            compiler_quiet_seconds=_ago(compile.last_end_at, epoch),
            stall_limit_seconds=telling.value("stall_limit_seconds"),
            batch_quiet_seconds=_ago(telling.value("last_batch_timestamp_seconds"), epoch),
            open_seconds=_open_seconds(telling, judgement, stepped, epoch),
            compile_limit_seconds=telling.value("compile_limit_seconds"),
        ),
        life=_life(telling, judgement),
        agent=Agent(
            version=telling.info.get("agent") or None,
            missing=tuple(seam for seam, name in _SEAMS.items() if name not in telling.single),
        ),
        pauses=_pauses(telling, epoch),
        workers=_workers(telling),
        memory=_memory(telling),
    )


def _pauses(telling: _Telling, epoch: float) -> Pauses:
    since = telling.value("checkpoint_start_timestamp_seconds")
    evaluating = telling.value("evaluation_start_timestamp_seconds")
    ended = telling.value("evaluations_total")
    return Pauses(
        evaluating_seconds=telling.value("evaluation_seconds_total"),
        evaluating_since=evaluating,
        evaluating_for_seconds=None if evaluating is None else max(0.0, epoch - evaluating),
        evaluations=None if ended is None else int(ended),
        saving_seconds=telling.value("checkpoint_seconds_total"),
        saving_since=since,
        saving_for_seconds=None if since is None else max(0.0, epoch - since),
    )


def _who(who: tuple[str, int], telling: _Telling, attached: float | None) -> Who:
    name, owner = _called(who[0])
    return Who(
        run=who[0],
        rank=who[1],
        name=name,
        owner=owner,
        world_size=telling.count("world_size"),
        attached_at=attached,
        host=telling.info.get("host") or telling.instance or None,
        launcher=telling.info.get("launcher") or None,
        python=telling.info.get("python") or None,
        torch=telling.info.get("torch") or None,
        gpus=tuple(sorted(telling.gpus)),
        **_collective(telling),
    )


def _collective(telling: _Telling) -> dict[str, Any]:
    found = telling.values("collective_timeout_seconds", BACKENDS)
    if not found:
        return {}
    backend, seconds = min(found.items(), key=lambda one: one[1])
    return {"collective_timeout_seconds": seconds, "collective_backend": backend}


def _called(run: str) -> tuple[str, str | None]:
    """A run's own name and its owner, of what a daemon shows (``Owner.shown``).

    No owner's name has an ``@``, and no run whose own name has one is shown without its owner.
    """
    name, _, owner = run.rpartition("@")
    return (name, owner) if name and owner else (run, None)


def _compile(telling: _Telling, judgement: Judgement, epoch: float) -> Compile:
    ended = telling.value("compile_end_timestamp_seconds")
    began = telling.value("compile_start_timestamp_seconds")
    phase_seconds = telling.values("compile_seconds_total", PHASES)
    return Compile(
        begun=ended is not None or judgement.compiling,
        open=None
        if began is None
        else OpenActivity(
            began_at=began,
            seconds=max(0.0, epoch - began),
            phase=judgement.phase,
            counted=_counted(telling),
        ),
        last_end_at=ended,
        seconds=math.fsum(phase_seconds.values()),
        phase_seconds=phase_seconds,
        compilations=telling.counts("compilations_total", KINDS),
        recompiles=telling.counts("recompiles_total", CATEGORIES),
        graphs=telling.count("graphs_total"),
        graph_breaks=telling.count("graph_breaks_total"),
        failures=telling.count("compile_failures_total"),
        recompiles_after_warm=telling.count("recompiles_after_warm_total"),
        fallbacks=telling.count("compile_fallbacks_total"),
        wrappers=telling.count("compile_wrappers_total"),
        disabled=next((by for by in telling.chosen("compile_disabled") if by in DISABLED), None),
        cudagraph_skips=telling.count("cudagraph_skips_total"),
        cache_hits=telling.complete("compile_cache_hits_total", CACHES),
        cache_misses=telling.complete("compile_cache_misses_total", CACHES),
    )


def _counted(telling: _Telling) -> Counted | None:
    done = telling.counts("compile_progress_done", PROGRESS) or {}
    planned = telling.counts("compile_progress_planned", PROGRESS) or {}
    both = ((of, done.get(of), planned.get(of)) for of in PROGRESS)
    known = [(of, so_far, all_) for of, so_far, all_ in both if so_far is not None and all_]
    return Counted(of=known[0][0], done=known[0][1], total=known[0][2]) if known else None


def _memory(telling: _Telling) -> Memory | None:
    held = telling.complete("torch_memory_bytes", MEMORY)
    return Memory(bytes=held) if held else None


def _warmups(telling: _Telling, judgement: Judgement) -> Warmups:
    needed = _whole(telling.info.get("warm_steps", "")) or _WARM_STEPS
    steps, ended = telling.count("steps_total"), telling.value("warmup_end_timestamp_seconds")
    seconds, taken = telling.value("warmup_seconds"), telling.count("warmup_steps")
    latest = None
    if ended is not None and seconds is not None and taken is not None:
        latest = WarmupSpan(ended_at=ended, seconds=seconds, steps=taken)
    return Warmups(
        clean_steps_needed=needed,
        latest=latest,
        warm_at_step=None if steps is None else max(0, steps - judgement.clean_steps) + needed,
    )


def _open_seconds(
    telling: _Telling, judgement: Judgement, stepped: float | None, epoch: float
) -> float | None:
    """As the verdict has it (``open_since_ns``); a state that compiles began with its warm-up."""
    began = telling.value("state_start_timestamp_seconds")
    active = telling.value("compile_start_timestamp_seconds")
    if not judgement.compiling or began is None or active is None:
        return None
    return max(0.0, epoch - min(active, max(began, stepped or 0.0)))


def _life(telling: _Telling, judgement: Judgement) -> Life:
    how, code = telling.end.get("end"), telling.end.get("exit_code") or ""
    return Life(
        alive=judgement.state not in ENDED,
        end=None if how == State.LOST.value else how,
        exit_code=_whole(code),
    )


def _known(value: float | None) -> bool | None:
    return None if value is None else bool(value)


def _ago(moment: float | None, epoch: float) -> float | None:
    return None if moment is None else epoch - moment


def _workers(telling: _Telling) -> Workers | None:
    counts = telling.complete("compile_workers", ("busy", "idle"))
    return Workers(**counts) if counts else None


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
