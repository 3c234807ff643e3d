"""What limits the speed, from averages of what was measured: a verdict, its share, the evidence.

Pure. In this order:

1. Overheads: time in which the GPU could have worked and did not. Saving, evaluation, waiting for
   batches, and gaps between kernels (``host``); without a GPU, waiting for a CPU (``shared``); and
   ``waiting``, in which nothing of the training works. The largest one of at least OVERHEAD
   decides, unless waiting in collectives takes longer.
2. Else the GPU is what the training waits for, and one thing must explain that: reduced clocks,
   another program on it, waiting in collectives, arithmetic, or memory bandwidth.

There is no verdict where a reading is missing, or two explanations fit. Without GPM, utilization
shows that kernels ran, not what held them up: then there is no ``compute`` and no ``memory``.

A verdict does not flap: the present one ends at lower limits than it began at, and another must
exceed it by MARGIN. Readings that contradict it end it before the averages follow (``ruled_out``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared.phrases import counted
from warmwatch_monitor.figures.rank import LimitedBy
from warmwatch_monitor.model.machine import HARMLESS, LOW_POWER_RATIO

# Less than a fifth of the time is not worth a change of the program; profilers warn there too.
OVERHEAD = 0.2
MARGIN = 0.05
_RULED_OUT = 0.1  # the same for the readings of a few seconds, which vary more
# GPM's activity while such kernels run, on H200: matrix products 0.71 (TF32, GPT-2) to 0.97 (8192
# square, bfloat16), streams 0.84 to 0.92. So activity over this is about the share of their time.
_TENSOR_PEAK, _DRAM_PEAK = 0.8, 0.92
SATURATED = 0.5  # of the time; what takes less is not what a step mostly waits for
_LEAD = 0.15  # the accuracy of a share: if one exceeds the other by less, either may explain it
_LITTLE = 0.3  # a resource that is used less explains nothing
_ALL_SMS = 0.8  # of the SMs are busy, tensor cores and memory little used: other arithmetic
# NCCL's kernels run on about a quarter of the SMs, on two H200 by NVLink; tiny kernels on 2 %.
_NCCL_SMS, _FEWEST_SMS = 0.25, 0.1
NVLINK_BYTES = 40e9  # a second: a tenth of what the links of an H100 can do
_CPU_BOUND = 0.7  # of a core: the thread that launches kernels does little else
_CROWDED = 1.2  # runnable threads for each CPU
_NEAR_LIMIT = 0.95
_TENTH = 0.05  # of a core: less is shown with two decimals


class Load(Struct, frozen=True, kw_only=True):
    """Averages of what may limit a rank; ``None`` is "not known". Shares are of the time."""

    waiting: float | None = None  # the share in which its loop waits for batches
    saving: float | None = None
    evaluating: float | None = None
    by_chance: Collection[str] = ()  # verdicts that rest on a single pause, or on too little time
    fetched_ahead: bool = False  # another thread fetches the batches, so waits are not known
    batches: int | None = None  # of a DataLoader so far
    accelerated: bool | None = None  # it may use an accelerator that is not among its GPUs
    workers_compiled: int = 0  # DataLoader workers: they still compile, or later ones did so again
    busy: float | None = None  # the share in which any kernel ran
    sm: float | None = None  # GPM's activity, as ``tensor`` and ``dram``
    tensor: float | None = None
    dram: float | None = None
    nvlink_bytes: float | None = None  # received in a second
    others: float | None = None  # the share in which kernels of other runs' processes ran
    power: float | None = None  # share of the limit
    watts: float | None = None
    limit_watts: float | None = None
    throttled: Mapping[str, float] = {}  # shares by reason
    cpu: float | None = None  # cores that the process uses
    below: float | None = None  # cores that the processes below it use
    cpus: int | None = None  # that it may run on
    queued: float | None = None  # the share in which its main thread could run and had no CPU
    crowded: float | None = None  # runnable threads for each CPU
    gpus: int = 0
    ranks: int = 1  # of the run
    cudagraphs: str | None = None  # ``on``, ``off`` or ``skipped``
    mfu: float | None = None


class _Held(Struct, frozen=True):
    """The verdict until now, and by how much the limits are lower for it: it must not flap."""

    verdict: str | None
    margin: float

    def slack(self, verdict: str) -> float:
        return self.margin if verdict == self.verdict else 0.0


def limited_by(
    load: Load, verdict: str | None = None, *, margin: float = MARGIN
) -> LimitedBy | None:
    """What limits a rank with this load; ``verdict``: the one until now."""
    held = _Held(verdict, margin)
    overheads = [
        limit
        for limit in _overheads(load)
        if limit.share is not None and limit.share >= OVERHEAD - held.slack(limit.verdict)
    ]
    of_gpu = next(_of_gpu(load, held), None)
    if not overheads:
        return of_gpu
    if of_gpu is not None and of_gpu.verdict == "communication":  # costs the step like a gap
        overheads.append(of_gpu)
    largest = max(overheads, key=lambda limit: (limit.share or 0.0) + held.slack(limit.verdict))
    if largest.verdict in load.by_chance:
        return None
    if (reduced := _reduced_clocks(load, OVERHEAD)) is not None:
        return replace(largest, evidence=(*largest.evidence, *reduced.evidence))
    return largest


def ruled_out(load: Load, held: str) -> tuple[bool, str | None]:
    """Whether ``load``, of the last seconds, contradicts the verdict, and which one it shows."""
    if held in ("saving", "evaluation"):
        return False, None  # pauses are minutes apart: seconds do not contradict their share
    limit = limited_by(load, held, margin=_RULED_OUT)
    verdict = limit.verdict if limit else None
    return verdict != held, verdict


def _overheads(load: Load) -> Iterator[LimitedBy]:
    """The overheads that are known, whatever their share."""
    if load.saving is not None:
        text = f"{_percent(load.saving)} of the time saves checkpoints"
        yield LimitedBy(verdict="saving", share=load.saving, evidence=(text,))
    if load.evaluating is not None:
        text = f"{_percent(load.evaluating)} of the time evaluates"
        yield LimitedBy(verdict="evaluation", share=load.evaluating, evidence=(text,))
    kernels = () if load.busy is None else (f"kernels run {_percent(load.busy)} of the time",)
    if (waiting := _waiting(load)) is not None:
        text = f"{_percent(waiting)} of the time waits for batches"
        workers = (_workers(load.workers_compiled),) if load.workers_compiled else ()
        yield LimitedBy(verdict="input", share=waiting, evidence=(text, *workers, *kernels))
    if (gaps := _gaps(load)) is not None:
        yield _host(load, gaps)
    if (queued := _queued(load)) is not None:
        evidence = (*_shortage(load, of_verdict=queued), _cores(load))
        yield LimitedBy(verdict="shared", contended="cpu", share=queued, evidence=evidence)
    if (rest := _at_rest(load)) is not None:
        whose = "its processes and GPUs" if load.gpus else "its processes"
        text = f"{whose} are idle at least {_percent(rest)} of the time, no batch is awaited"
        yield LimitedBy(verdict="waiting", share=rest, evidence=(text, *kernels, _cores(load)))


def _workers(compiled: int) -> str:
    have = "has" if compiled == 1 else "have"
    return f"{counted(compiled, 'DataLoader worker')} {have} compiled, each for itself"


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
    """The share in which surely no GPU of the rank runs a kernel. Several may run them in turn.

    Saves and evaluations are left out, as in ``busy``.
    """
    if load.busy is None:
        return None
    return max(0.0, 1.0 - load.busy * max(1, load.gpus)) * max(0.0, 1.0 - _paused(load))


def _gaps(load: Load) -> float | None:
    """The share in which no kernel runs and no batch is awaited, of a process that would work."""
    idle = _idle(load)
    if idle is None or load.cpu is None or load.fetched_ahead:
        return None
    # what it would use if it never waited for a CPU: a quota may leave it less than one
    if load.cpu + (load.queued or 0.0) < _CPU_BOUND:
        return None
    return max(0.0, idle - (load.waiting or 0.0))


def _queued(load: Load) -> float | None:
    """The share in which others keep its main thread from a CPU, of a training without a GPU.

    Where its own threads use the CPUs, the wait for one costs nothing. What of it is within saves
    and evaluations is not measured, so it counts in proportion.
    """
    if load.gpus or load.queued is None or load.cpu is None or not load.cpus:
        return None
    used_by_others = max(0.0, 1.0 - load.cpu / load.cpus)
    return min(load.queued * max(0.0, 1.0 - _paused(load)), used_by_others)


def _at_rest(load: Load) -> float | None:
    """The share in which nothing of the training works, and nothing measured explains that.

    A sleep, a socket, an object store, a reward server. Whether CPU and GPU work at the same time
    or in turns is not known, so this is the least that it can be.
    """
    waited = load.waiting if load.batches else 0.0
    idle = _idle(load) if load.gpus else max(0.0, 1.0 - _paused(load))
    unseen = load.accelerated is not False and not load.gpus  # what that does is not known
    if idle is None or unseen or load.fetched_ahead:
        return None
    if None in (load.cpu, load.below, load.queued, load.batches, waited):
        return None
    used = (load.cpu or 0.0) + (load.below or 0.0) + (load.queued or 0.0)
    return max(0.0, idle - used - (waited or 0.0))


def _paused(load: Load) -> float:
    return (load.saving or 0.0) + (load.evaluating or 0.0)


def _shortage(load: Load, least: float = 0.0, of_verdict: float | None = None) -> Iterator[str]:
    """Signs that it lacks CPUs: for its quota, or for other threads on the same CPUs.

    ``least``: share of the time without a CPU that is a sign. With less, threads that crowd the
    CPUs do not slow this one. ``of_verdict``: its share, which leaves out waits that cost nothing.
    """
    if load.queued is not None:
        if load.queued < least:
            return
        share = _percent(of_verdict or load.queued)
        bound = "" if share == _percent(load.queued) else "at least "
        yield f"its main thread waits for a CPU {bound}{share} of the time"
    if load.crowded is not None and load.crowded >= _CROWDED:
        yield f"{load.crowded:.1f} runnable threads for each CPU"


def _cores(load: Load) -> str:
    used = load.cpu or 0.0
    amount = f"{used:.1f}" if used >= _TENTH else f"{used:.2f}"
    whole = f"of {counted(load.cpus, 'CPU')}" if load.cpus else "cores"
    return f"the process uses {amount} {whole}"


def _host(load: Load, gaps: float) -> LimitedBy:
    # of a loader that is not PyTorch's, and of the start of workers, no wait is measured
    besides = "" if load.waiting is None else ", besides the measured waits for batches"
    parts = [f"no kernel runs {_percent(gaps)} of the time{besides}", _cores(load)]
    if shortage := tuple(_shortage(load, OVERHEAD)):
        evidence = (*parts, *shortage)
        return LimitedBy(verdict="shared", contended="cpu", share=gaps, evidence=evidence)
    if load.cudagraphs == "off":
        parts.append('CUDA graphs are off: mode="reduce-overhead" may help')
    elif load.cudagraphs == "skipped":
        parts.append("CUDA graphs were requested and skipped")
    return LimitedBy(verdict="host", share=gaps, evidence=tuple(parts))


def _of_gpu(load: Load, held: _Held) -> Iterator[LimitedBy]:
    """What explains that the GPU is busy, the most certain first."""
    if load.busy is None or load.busy < SATURATED:
        return
    if (reduced := _reduced_clocks(load, OVERHEAD - held.slack("throttled"))) is not None:
        yield reduced
    if load.others is not None and load.others >= OVERHEAD - held.slack("shared"):
        evidence = (f"other programs use the GPU {_percent(load.others)} of the time",)
        yield LimitedBy(verdict="shared", contended="gpu", share=load.others, evidence=evidence)
    yield from _by_gpm(load, held)


def _reduced_clocks(load: Load, least: float) -> LimitedBy | None:
    """The reason that reduces the clocks most of the time, if that is a share of ``least``."""
    reasons = [(share, name) for name, share in load.throttled.items() if name not in HARMLESS]
    share, reason = max(reasons, default=(0.0, ""))
    if share < least:
        return None
    text = f"reduced clocks {_percent(share)} of the time ({reason})"
    return LimitedBy(verdict="throttled", share=share, evidence=(text,))


def _by_gpm(load: Load, held: _Held) -> Iterator[LimitedBy]:
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
        ("compute", compute, dram, (measured, *_mfu_and_power(load))),
        ("memory", dram, compute, (measured,)),
    ):
        slack = held.slack(verdict)
        if share >= SATURATED - slack and share - other >= _LEAD - slack:
            yield LimitedBy(verdict=verdict, share=share, evidence=evidence)
    if tensor < _LITTLE and dram < SATURATED:
        share = _collective(load)
        if share >= SATURATED - held.slack("communication"):
            yield LimitedBy(verdict="communication", share=share, evidence=tuple(_kernels(load)))


def _collective(load: Load) -> float:
    """Share of the time in which NCCL's kernels fit what is measured; 0 if they do not.

    They occupy few SMs, where other kernels occupy nearly all. They draw little power while they
    wait, or they move data. Tiny kernels occupy fewer SMs.
    """
    if load.ranks < 2 or load.busy is None or load.sm is None or load.power is None:
        return 0.0
    waits = load.sm >= _FEWEST_SMS and load.power < LOW_POWER_RATIO
    moves = load.nvlink_bytes is not None and load.nvlink_bytes >= NVLINK_BYTES
    if not waits and not moves:
        return 0.0
    return max(0.0, min(load.busy, (load.busy - load.sm) / (1.0 - _NCCL_SMS)))


def _kernels(load: Load) -> Iterator[str]:
    """What collectives do on the GPU."""
    busy, sms = _percent(load.busy or 0.0), _percent(load.sm or 0.0)
    yield f"kernels run {busy} of the time, on {sms} of the SMs"
    traffic = load.nvlink_bytes or 0.0
    moved = f"NVLink receives {traffic / 1e9:.0f} GB/s, " if traffic > NVLINK_BYTES else ""
    yield f"{moved}{_watts(load)}"


def _mfu_and_power(load: Load) -> Iterator[str]:
    if load.mfu is not None:
        yield f"MFU {_percent(load.mfu)}"
    if load.power is not None and load.power >= _NEAR_LIMIT:
        yield f"at its power limit ({_watts(load)})"


def _watts(load: Load) -> str:
    return f"{load.watts or 0:.0f} of {load.limit_watts or 0:.0f} W"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
