"""What limits the speed of a warm or eager rank: one verdict, its share, the evidence. Pure.

:func:`follow` averages what each poll measured since the last compile activity, into a
:class:`Window` of fixed size. :func:`limited_by` maps such averages to a verdict:

1. Overheads: time in which the GPU could have worked and did not. Saving, evaluation, waiting for
   batches, and gaps between kernels (``host``). The largest one of at least OVERHEAD decides,
   unless waiting in collectives takes longer.
2. Else the GPU is what the training waits for, and one thing must explain that: reduced clocks,
   another program on it, waiting in collectives, arithmetic, or memory bandwidth.

There is no verdict where a reading is missing, or two explanations fit. Without GPM, utilization
shows that kernels ran, not what held them up: then there is no ``compute`` and no ``memory``.
Saves and evaluations count from the first second on, but one of them has no rate: the share of a
single pause is no verdict, and there is no other one while it is that large.

A verdict does not flap. Averages span half a minute or four steps. The present verdict ends at
lower limits than it began at, and another must exceed it by MARGIN.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared.verdict import WARM, evaluating_since_ns, saving_since_ns
from warmwatch_monitor.model import (
    GpuReading,
    Host,
    LimitedBy,
    RankView,
    RunView,
    with_laggard,
)
from warmwatch_monitor.model.machine import HARMLESS, LOW_POWER_RATIO

# Less than a fifth of the time is not worth a change of the program; profilers warn there too.
OVERHEAD = 0.2
MARGIN = 0.05
# GPM's activity while such kernels run, on H200: matrix products 0.71 (TF32, GPT-2) to 0.97 (8192
# square, bfloat16), streams 0.84 to 0.92. So activity over this is about the share of their time.
_TENSOR_PEAK, _DRAM_PEAK = 0.8, 0.92
SATURATED = 0.5  # of the time; what takes less is not what a step mostly waits for
_LEAD = 0.15  # of one share over the other, as they are known to so much; else both explain it
_LITTLE = 0.3  # the resource explains nothing
_ALL_SMS = 0.8  # so many SMs busy with neither: other arithmetic
# NCCL's kernels run on about a quarter of the SMs, on two H200 by NVLink; tiny kernels on 2 %.
_NCCL_SMS, _FEWEST_SMS = 0.25, 0.1
_NVLINK_BYTES = 40e9  # a second: a tenth of what the links of an H100 can do
_CPU_BOUND = 0.7  # of a core: the thread that launches kernels does little else
_CROWDED = 1.2  # runnable threads for each CPU
_NEAR_LIMIT = 0.95

_POLL_NS = 10**9  # NVML's averages are not shorter
_WINDOW, _WINDOW_STEPS = 30.0, 4
_RARE, _PAUSES = 600.0, {"saving": "saving", "evaluating": "evaluation"}  # minutes apart
_LEAST, _LEAST_STEPS = 5.0, 3
_RECURS = 1.25  # times the longest pause: less is that pause alone, and it has no rate
_FIRST_POLL = 30.0
_SETTLED = 2.5  # seconds after a gap, in which NVML still reports the idle GPU


class Load(Struct, frozen=True, kw_only=True):
    """Averages of what may limit a rank; ``None`` is "not known".

    Attributes:
        waiting, saving, evaluating: shares of the time. by_chance: the verdicts among saving
        and evaluation that rest on a single pause, or on too little time.
        fetched_ahead: whether another thread fetches the batches, so that waits are not known.
        busy: share of the time in which any kernel ran. sm, tensor, dram: GPM's activity.
        nvlink_bytes: received in a second. others: share of the time in which kernels of processes
        of other runs ran.
        power: of the limit. watts, limit_watts: the same in watts. throttled: shares of the time
        by reason. cpu: cores that the process uses. queued: share of the time in which its main
        thread had no CPU, of that in which it could run. crowded: runnable threads for each CPU.
        gpus: how many it uses. ranks: of the run. cudagraphs: ``on``, ``off`` or ``skipped``.
        mfu: Model FLOPs utilization.
    """

    waiting: float | None = None
    saving: float | None = None
    evaluating: float | None = None
    by_chance: Collection[str] = ()
    fetched_ahead: bool = False
    busy: float | None = None
    sm: float | None = None
    tensor: float | None = None
    dram: float | None = None
    nvlink_bytes: float | None = None
    others: float | None = None
    power: float | None = None
    watts: float | None = None
    limit_watts: float | None = None
    throttled: Mapping[str, float] = {}
    cpu: float | None = None
    queued: float | None = None
    crowded: float | None = None
    gpus: int = 0
    ranks: int = 1
    cudagraphs: str | None = None
    mfu: float | None = None


def limited_by(load: Load, held: str | None = None) -> LimitedBy | None:
    """What limits a rank with this load; ``held`` is the verdict until now."""
    overheads = [
        one
        for one in _overheads(load)
        if one.share is not None and one.share >= OVERHEAD - _slack(one.verdict, held)
    ]
    of_gpu = next(_of_gpu(load, held), None)
    if not overheads:
        return of_gpu
    if of_gpu is not None and of_gpu.verdict == "communication":  # costs the step like a gap
        overheads.append(of_gpu)
    found = max(overheads, key=lambda one: (one.share or 0.0) + _slack(one.verdict, held))
    if found.verdict in load.by_chance:
        return None
    if (reduced := _reduced_clocks(load, OVERHEAD)) is not None:
        found = replace(found, evidence=(*found.evidence, *reduced.evidence))
    return found


def _slack(verdict: str, held: str | None) -> float:
    """How much lower the limits of a verdict are that holds already: so it does not flap."""
    return MARGIN if verdict == held else 0.0


def _overheads(load: Load) -> Iterator[LimitedBy]:
    """The overheads that are known, whatever their share."""
    if load.saving is not None:
        words = f"{_percent(load.saving)} of the time saves checkpoints"
        yield LimitedBy(verdict="saving", share=load.saving, evidence=(words,))
    if load.evaluating is not None:
        words = f"{_percent(load.evaluating)} of the time evaluates"
        yield LimitedBy(verdict="evaluation", share=load.evaluating, evidence=(words,))
    if (waiting := _waiting(load)) is not None:
        words = f"{_percent(waiting)} of the time waits for batches"
        busy = () if load.busy is None else (f"kernels run {_percent(load.busy)} of the time",)
        yield LimitedBy(verdict="input", share=waiting, evidence=(words, *busy))
    if (gaps := _gaps(load)) is not None:
        yield _host(load, gaps)


def _waiting(load: Load) -> float | None:
    """The share in which the loop waits for batches and the GPU has nothing left to do.

    The CPU runs ahead of the GPU: a wait during which queued kernels run costs nothing. So it is
    not known where the GPU is not.
    """
    if load.waiting is None or (load.gpus and load.busy is None):
        return None
    idle = _idle(load)
    return load.waiting if idle is None else min(load.waiting, idle)


def _idle(load: Load) -> float | None:
    """The share in which surely no GPU of the rank runs a kernel: several may do so in turn.

    Saves and evaluations are left out, as in ``busy``.
    """
    if load.busy is None:
        return None
    paused = (load.saving or 0.0) + (load.evaluating or 0.0)
    return max(0.0, 1.0 - load.busy * max(1, load.gpus)) * max(0.0, 1.0 - paused)


def _gaps(load: Load) -> float | None:
    """The share in which no kernel runs and no batch is awaited, of a process that would work."""
    idle = _idle(load)
    if idle is None or load.cpu is None or load.fetched_ahead:
        return None
    # what it would use if it never waited for a CPU: a quota may leave it less than one
    if load.cpu < _CPU_BOUND * (1.0 - (load.queued or 0.0)):
        return None
    return max(0.0, idle - (load.waiting or 0.0))


def _lacks_cpu(load: Load) -> bool:
    """Whether its main thread waits for a CPU: for its quota, or for others on the same CPUs."""
    return load.queued is not None and load.queued >= OVERHEAD


def _host(load: Load, gaps: float) -> LimitedBy:
    # of a loader that is not PyTorch's, and of the start of workers, no wait is measured
    besides = "" if load.waiting is None else ", besides the measured waits for batches"
    words = [
        f"no kernel runs {_percent(gaps)} of the time{besides}",
        f"the process uses {load.cpu:.1f} cores",
    ]
    crowded = load.crowded is not None and load.crowded >= _CROWDED
    if crowded or _lacks_cpu(load):
        if _lacks_cpu(load):
            waits = _percent(load.queued or 0.0)
            words.append(
                f"its main thread waits for a CPU {waits} of the time in which it could run"
            )
        if crowded:
            words.append(f"{load.crowded:.1f} runnable threads for each CPU")
        return LimitedBy(verdict="shared", share=gaps, evidence=tuple(words))
    if load.cudagraphs == "off":
        words.append('CUDA graphs are off: mode="reduce-overhead" may help')
    elif load.cudagraphs == "skipped":
        words.append("CUDA graphs were requested and skipped")
    return LimitedBy(verdict="host", share=gaps, evidence=tuple(words))


def _of_gpu(load: Load, held: str | None) -> Iterator[LimitedBy]:
    """What explains that the GPU is busy, the most certain first."""
    if load.busy is None or load.busy < SATURATED:
        return
    if (reduced := _reduced_clocks(load, OVERHEAD - _slack("throttled", held))) is not None:
        yield reduced
    if load.others is not None and load.others >= OVERHEAD - _slack("shared", held):
        words = f"other programs use the GPU {_percent(load.others)} of the time"
        yield LimitedBy(verdict="shared", share=load.others, evidence=(words,))
    yield from _pipes(load, held)


def _reduced_clocks(load: Load, least: float) -> LimitedBy | None:
    """The reason that reduces the clocks most of the time, if that is a share of ``least``."""
    reasons = [(share, name) for name, share in load.throttled.items() if name not in HARMLESS]
    share, reason = max(reasons, default=(0.0, ""))
    if share < least:
        return None
    words = f"reduced clocks {_percent(share)} of the time ({reason})"
    return LimitedBy(verdict="throttled", share=share, evidence=(words,))


def _pipes(load: Load, held: str | None) -> Iterator[LimitedBy]:
    """Arithmetic, memory bandwidth, or collectives, by GPM's activity."""
    if load.sm is None or load.tensor is None or load.dram is None or load.busy is None:
        return
    tensor, dram = min(1.0, load.tensor / _TENSOR_PEAK), min(1.0, load.dram / _DRAM_PEAK)
    sms = load.sm if load.sm >= _ALL_SMS else 0.0
    measured = (
        f"tensor cores {_percent(load.tensor)}, SMs {_percent(load.sm)}, "
        f"memory bandwidth {_percent(load.dram)}"
    )
    compute = sms if max(tensor, dram) < _LITTLE else tensor
    for verdict, share, other, evidence in (
        ("compute", compute, dram, (measured, *_around(load))),
        ("memory", dram, compute, (measured,)),
    ):
        slack = _slack(verdict, held)
        if share >= SATURATED - slack and share - other >= _LEAD - slack:
            yield LimitedBy(verdict=verdict, share=share, evidence=evidence)
    if tensor < _LITTLE and dram < SATURATED:
        share = _collective(load)
        if share >= SATURATED - _slack("communication", held):
            yield LimitedBy(verdict="communication", share=share, evidence=tuple(_kernels(load)))


def _collective(load: Load) -> float:
    """Share of the time in which NCCL's kernels fit what is measured; 0 if they do not.

    They occupy few SMs, where other kernels occupy nearly all. They draw little power while they
    wait, or they move data. Tiny kernels occupy fewer SMs.
    """
    if load.ranks < 2 or load.busy is None or load.sm is None or load.power is None:
        return 0.0
    waits = load.sm >= _FEWEST_SMS and load.power < LOW_POWER_RATIO
    moves = load.nvlink_bytes is not None and load.nvlink_bytes >= _NVLINK_BYTES
    if not waits and not moves:
        return 0.0
    return max(0.0, min(load.busy, (load.busy - load.sm) / (1.0 - _NCCL_SMS)))


def _kernels(load: Load) -> Iterator[str]:
    """What collectives do on the GPU."""
    busy, sms = _percent(load.busy or 0.0), _percent(load.sm or 0.0)
    yield f"kernels run {busy} of the time, on {sms} of the SMs"
    traffic = load.nvlink_bytes or 0.0
    moved = f"NVLink receives {traffic / 1e9:.0f} GB/s, " if traffic > _NVLINK_BYTES else ""
    yield f"{moved}{_watts(load)}"


def _around(load: Load) -> Iterator[str]:
    if load.mfu is not None:
        yield f"MFU {_percent(load.mfu)}"
    if load.power is not None and load.power >= _NEAR_LIMIT:
        yield f"at its power limit ({_watts(load)})"


def _watts(load: Load) -> str:
    return f"{load.watts or 0:.0f} of {load.limit_watts or 0:.0f} W"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


class Mean(NamedTuple):
    """A mean over the first ``seconds``; from a whole window on, an exponential moving average.

    The window is its time constant, so older values still count a little.
    """

    value: float
    seconds: float
    largest: float = 0.0  # part of ``value`` times ``seconds`` that one call added

    def with_more(self, value: float, seconds: float, window: float) -> Mean:
        weight = min(self.seconds, max(0.0, window - seconds))
        if not (total := weight + seconds):
            return self
        largest = self.largest * (weight / self.seconds if weight else 0.0)
        mean = (self.value * weight + value * seconds) / total
        return Mean(mean, total, max(largest, value * seconds))

    @property
    def recurs(self) -> bool:
        """Whether it is more than one large part."""
        return self.value * self.seconds >= _RECURS * self.largest


class Window(Struct, frozen=True, kw_only=True):
    """The averages of one rank between two polls, by name of their field in :class:`Load`.

    Attributes:
        at_ns: the last poll. begun: compile activities that had begun. step_ns: the last step.
        wait_ns, saving_ns, evaluating_ns, batches: totals at that step. gpu_ns: the last GPU
        reading. cpu_seconds: of its process. fetched_ahead: see :class:`Load`. verdict: the
        last one.
    """

    at_ns: int
    begun: int
    step_ns: int
    wait_ns: int
    saving_ns: int
    evaluating_ns: int
    batches: int = 0
    fetched_ahead: bool = False
    gpu_ns: int = 0
    cpu_seconds: float | None = None
    means: Mapping[str, Mean] = {}
    throttled: Mapping[str, Mean] = {}
    verdict: LimitedBy | None = None


def follow(
    known: Window | None, view: RankView, now_ns: int, pids: Collection[int | None]
) -> Window:
    """``known`` with what this poll of a rank that is warm or eager adds.

    ``pids``: of all ranks of its run.
    """
    slot = view.record.slot
    steps, counts = slot.steps, slot.compile
    now = Window(
        at_ns=now_ns,
        begun=counts.begun,
        step_ns=steps.last_step_ns,
        wait_ns=steps.batch_wait_ns,
        saving_ns=counts.saving_ns,
        evaluating_ns=counts.evaluating_ns,
        batches=steps.batches,
        fetched_ahead=known is not None and known.fetched_ahead,
        gpu_ns=max((one.at_ns for one in view.gpus), default=0),
        cpu_seconds=view.process.cpu_seconds if view.process else None,
    )
    if known is None or known.begun != now.begun or now.step_ns < known.step_ns:
        return replace(now, means={} if known else _first_poll(view))
    if now.step_ns == known.step_ns:  # a pause since belongs to the step that comes
        now = replace(
            now,
            wait_ns=known.wait_ns,
            saving_ns=known.saving_ns,
            evaluating_ns=known.evaluating_ns,
            batches=known.batches,
        )
    means, throttled = dict(known.means), dict(known.throttled)
    window = _window(view)
    if took := (now.step_ns - known.step_ns) / 1e9:
        waited = (now.wait_ns - known.wait_ns) / 1e9
        _add(means, "waiting", min(1.0, waited / took), took, window)
        _add_pause(means, "saving", now.saving_ns - known.saving_ns, took, window)
        spent_ns = now.evaluating_ns - known.evaluating_ns
        _add_pause(means, "evaluating", spent_ns, took, window)
        if now.batches > known.batches and not spent_ns:
            # each wait of the training's own thread takes some time
            now = replace(now, fetched_ahead=now.wait_ns == known.wait_ns)
    took = (now.gpu_ns - known.gpu_ns) / 1e9
    if took > 0 and known.gpu_ns and _is_training(view, now_ns):
        for name, value in _measured(view, pids):
            _add(means, name, value, took, window)
        reasons = {name for gpu in view.gpus for name, holds in gpu.throttled if holds}
        for name in {name for gpu in view.gpus for name, _ in gpu.throttled}:
            _add(throttled, name, float(name in reasons), took, window)
    took = (now_ns - known.at_ns) / 1e9
    if took > 0 and now.cpu_seconds is not None and known.cpu_seconds is not None:
        _add(means, "cpu", (now.cpu_seconds - known.cpu_seconds) / took, took, window)
    if took > 0 and view.process and view.process.queued_ratio is not None:
        _add(means, "queued", view.process.queued_ratio, took, window)
    return replace(now, means=means, throttled=throttled, verdict=known.verdict)


def _add_pause(
    means: dict[str, Mean], name: str, spent_ns: int, took: float, window: float
) -> None:
    """Add the saves or evaluations within ``took`` seconds, up to one step."""
    _add(means, name, min(1.0, spent_ns / 1e9 / took), took, max(_RARE, window))


def _window(view: RankView) -> float:
    """Time constant of its averages in seconds."""
    return max(_WINDOW, _WINDOW_STEPS * (view.figures.steps.length or 0.0))


def _add(means: dict[str, Mean], name: str, value: float, seconds: float, window: float) -> None:
    means[name] = means.get(name, Mean(0.0, 0.0)).with_more(value, seconds, window)


def _first_poll(view: RankView) -> dict[str, Mean]:
    """Shares of the whole run, for a reader that comes late; empty soon after compile activity.

    They include the wait for the first batch, so the time is that since the agent attached.
    Compiling is no share of a warm run. How much of it was in evaluations is not known. Of the
    pauses, only the longest is known by itself.
    """
    steps, counts = view.figures.steps, view.record.slot.compile
    spent = {
        "waiting": steps.batch_wait_seconds or 0.0,
        "saving": counts.saving_ns / 1e9,
        "evaluating": counts.evaluating_ns / 1e9,
    }
    compiling, attached = view.figures.compile.seconds, view.figures.who.attached_at
    if attached is None or steps.last_at is None:
        return {}
    ran = steps.last_at - attached - compiling
    since = view.judgement.clean_steps * (steps.length or 0.0)
    if min(ran, since) < _FIRST_POLL or min(compiling, spent["evaluating"]) > MARGIN * ran:
        return {}
    long = view.figures.log.long_steps
    longest = {
        "saving": max((one.saving_seconds for one in long), default=0.0),
        "evaluating": max((one.evaluating_seconds for one in long), default=0.0),
    }
    return {
        name: Mean(min(1.0, one / ran), ran, longest.get(name, 0.0)) for name, one in spent.items()
    }


def _is_training(view: RankView, now_ns: int) -> bool:
    """Whether GPU readings are of its steps, and not of a pause that lasts or has just ended.

    Other gaps count: the GPU is idle because the loader, or something unknown, holds it up.
    """
    pauses, counts = view.figures.pauses, view.record.slot.compile
    if pauses.saving_since or pauses.evaluating_since or pauses.between_cells_since:
        return False
    gap = view.figures.progress.gap_seconds
    until = max(counts.saved_ns, counts.evaluated_ns, counts.between_cells_until_ns)
    return gap is None or max(gap, (now_ns - until) / 1e9) >= _SETTLED


def _measured(view: RankView, pids: Collection[int | None]) -> Iterator[tuple[str, float]]:
    """Means over its GPUs, of what all of them report."""
    columns: Mapping[str, Sequence[float | None]] = {
        "busy": [one.utilization_ratio for one in view.gpus],
        "sm": [one.sm_active_ratio for one in view.gpus],
        "tensor": [one.tensor_active_ratio for one in view.gpus],
        "dram": [one.dram_active_ratio for one in view.gpus],
        "nvlink_bytes": [one.nvlink_bytes for one in view.gpus],
        "watts": [one.power_watts for one in view.gpus],
        "limit_watts": [one.power_limit_watts for one in view.gpus],
        "others": [_others(one, view.record.pid, pids) for one in view.gpus],
    }
    for name, column in columns.items():
        known = [value for value in column if value is not None]
        if known and len(known) == len(column):
            yield name, sum(known) / len(known)


def _others(gpu: GpuReading, own: int | None, pids: Collection[int | None]) -> float | None:
    """Utilization by processes of other runs; ``None`` if not known.

    NVML has the pids of the host. If the rank's own is not among them, it is in a container.
    """
    if gpu.processes is None or own not in gpu.processes:
        return None
    return min(1.0, sum(ratio for pid, ratio in gpu.process_ratios if pid not in pids))


def _with_pause(window: Window, view: RankView, now_ns: int) -> Window:
    """``window`` with the saves and evaluations since its last step, and the one in progress."""
    slot, means = view.record.slot, dict(window.means)
    counts, took = slot.compile, (now_ns - window.step_ns) / 1e9
    for name, spent_ns, since_ns in (
        ("saving", counts.saving_ns - window.saving_ns, saving_since_ns(slot.steps, counts)),
        (
            "evaluating",
            counts.evaluating_ns - window.evaluating_ns,
            evaluating_since_ns(slot.steps, counts),
        ),
    ):
        spent_ns += max(0, now_ns - since_ns) if since_ns else 0
        if spent_ns and took > 0:
            _add_pause(means, name, spent_ns, took, _window(view))
    return replace(window, means=means)


def load_of(window: Window, view: RankView, host: Host | None, now_ns: int) -> Load:
    """The averages of ``window`` that cover enough time."""
    window = _with_pause(window, view, now_ns)
    step = view.figures.steps.length
    least = max(_LEAST, _LEAST_STEPS * (step or 0.0))
    settled = {name for name, one in window.means.items() if one.seconds >= least}
    known = {
        name: one.value
        for name, one in window.means.items()
        if name in settled or name in _PAUSES  # these rule out others from the beginning
    }
    watts, limit = known.get("watts"), known.get("limit_watts")
    if not view.figures.steps.batches:
        known.pop("waiting", None)
    compile, who = view.figures.compile, view.figures.who
    kinds = compile.compilations or {}
    graphs = None if compile.compilations is None else "on" if kinds.get("cudagraph") else "off"
    return Load(
        **known,
        by_chance=[
            verdict
            for name, verdict in _PAUSES.items()
            if name not in settled or not window.means[name].recurs
        ],
        power=watts / limit if watts is not None and limit else None,
        throttled={
            name: one.value for name, one in window.throttled.items() if one.seconds >= least
        },
        crowded=host.load_1m / host.cpus if host and host.load_1m and host.cpus else None,
        fetched_ahead=window.fetched_ahead,
        gpus=len(who.gpus),
        ranks=who.world_size or 1,
        cudagraphs="skipped" if compile.cudagraph_skips else graphs,
        mfu=view.utilization.ratio if view.utilization else None,
    )


Windows = Mapping[str, Window]


def with_limits(
    runs: Sequence[RunView],
    known: Windows,
    host: Host | None,
    now_ns: int,
) -> tuple[dict[str, Window], tuple[RunView, ...]]:
    """The windows for the next poll, and ``runs`` with what limits their ranks."""
    windows, judged = {}, []
    for run in runs:
        ranks, pids = [], {one.record.pid for one in run.ranks}
        for view in run.ranks:
            folder = view.record.folder
            window = known.get(folder)
            if view.living and view.judgement.state in WARM and view.figures.steps.count:
                if window is None or now_ns - window.at_ns >= _POLL_NS:
                    window = follow(window, view, now_ns, pids)
                    load = load_of(window, view, host, now_ns)
                    held = window.verdict.verdict if window.verdict else None
                    window = replace(window, verdict=limited_by(load, held))
            elif view.living and window is not None:
                window = None  # it compiles: what limited it before is past
            if window is not None:
                windows[folder] = window
                if window.verdict is not None:
                    view = replace(view, limited_by=window.verdict)
            ranks.append(view)
        judged.append(run.with_ranks(with_laggard(_without_mutual_waits(ranks, windows))))
    return windows, tuple(judged)


def _without_mutual_waits(ranks: Sequence[RankView], windows: Windows) -> Sequence[RankView]:
    """``ranks``, without ``communication`` if all ranks of the run wait and none moves data.

    There is no rank to wait for then: other small kernels look the same.
    """
    waiting = [one for one in ranks if one.limited_by and one.limited_by.verdict == "communication"]
    traffic = [windows[one.record.folder].means.get("nvlink_bytes") for one in waiting]
    moves = any(one is None or one.value >= _NVLINK_BYTES for one in traffic)
    if moves or not waiting or len(waiting) < max(one.figures.who.world_size or 1 for one in ranks):
        return ranks
    return [replace(one, limited_by=None) for one in ranks]
