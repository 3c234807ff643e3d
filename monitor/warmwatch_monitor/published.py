"""Values that the pipeline makes and ``/status`` publishes as they are: one type for both.

They are below every other room of the monitor: a command that shows a daemon's answer loads their
types, and nothing that makes them.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct

from warmwatch.shared.states import LIMITS

# A number beyond this is damaged: it counts nothing, and no calendar has a day for it.
_LARGEST = 2.0**64


def _unit(name: str) -> Meta:
    return Meta(gt=-_LARGEST, lt=_LARGEST, extra_json_schema={"x-unit": name} if name else None)


Number = Annotated[float, _unit("")]
Seconds = Annotated[float, _unit("s")]
Epoch = Annotated[float, _unit("s since the epoch")]
Joules = Annotated[float, _unit("J")]
Trend = Literal["faster", "slower"]


class Place(Struct, frozen=True, kw_only=True):
    """A line of code."""

    name: str
    """Name of its function."""
    file: str
    """Base name of its file."""
    line: int
    """Number of the line."""


class Workers(Struct, frozen=True, kw_only=True):
    """Compile workers."""

    busy: int
    """Compile workers whose CPU time grows."""
    idle: int
    """The other compile workers."""

    @property
    def count(self) -> int:
        return self.busy + self.idle


class WarmupSpan(Struct, frozen=True, kw_only=True):
    """A warm-up that has ended; all null if none has."""

    ended_at: Epoch | None = None
    """When its last compile activity ended."""
    seconds: Seconds | None = None
    """From its first compile activity to the end of its last."""
    steps: int | None = None
    """Steps within it."""


class Counted(Struct, frozen=True, kw_only=True):
    """Progress of the compile activity."""

    of: str
    """What is counted: `kernels`, or `choices` of an autotuning."""
    done: int
    """Number of these that are done."""
    total: int
    """Number of these in all."""


class Estimate(Struct, frozen=True, kw_only=True):
    """Estimated time left of a compilation, from what the same took before.

    `docs/reference/estimates.md` has the method.
    """

    of: str
    """`warmup`: the whole first warm-up; `function`: the recompile in progress."""
    so_far_seconds: Seconds
    """Time that it has taken so far."""
    last_seconds: Seconds
    """Time that it took last time."""
    left_seconds: Seconds | None = None
    """Estimated time left; null if it already takes longer than ever before."""
    low: Seconds | None = None
    """Shortest time left by earlier times; null unless several took longer than so far."""
    high: Seconds | None = None
    """Longest time left by earlier times; null unless several took longer than so far."""
    phases: Mapping[str, Seconds] = {}
    """Estimated time left by phase, divided as last time."""
    precedents: int = 1
    """Number of earlier times that the estimate rests on: of runs, ranks, or compilations of the
    function, each alone and with the backward that followed it."""
    of_rank: bool = False
    """Whether it rests on other ranks of this run, not on earlier runs."""


class Slower(Struct, frozen=True, kw_only=True):
    """How a rank is slower than it was since its warm-up."""

    ratio: Number
    """`seconds` divided by `before`."""
    seconds: Seconds
    """Length of a step now."""
    before: Seconds
    """Length of a step at the fastest lasting level since the warm-up."""
    since_step: int | None = None
    """Last step at the speed of `before`; null if the monitor did not see the change."""
    causes: tuple[str, ...] | None = ()
    """What differs from that time, as far as it is measured; empty: no known cause. Null if not
    measured: no daemon polled before the change, or the answer comes from Prometheus.
    """


class SlowerPeriod(Struct, frozen=True, kw_only=True):
    """A time in which a rank was slower than before."""

    began_at: Epoch | None = None
    """When it began; null if the monitor did not see the change."""
    ended_at: Epoch | None = None
    """When it ended; null while it lasts."""
    since_step: int | None = None
    """The last step before it; null if the monitor did not see the change."""
    until_step: int | None = None
    """Its last step; null while it lasts."""
    seconds: Seconds
    """Mean length of the clean steps in it."""
    before: Seconds
    """Length of a step at the fastest lasting level since the warm-up."""
    ratio: Number
    """`seconds` divided by `before`."""
    causes: tuple[str, ...] | None = None
    """Its last known causes; empty: none was known. Null if not measured: no daemon polled before
    it.
    """


class MemoryGrowth(Struct, frozen=True, kw_only=True):
    """How memory grows while a rank trains."""

    of: Literal["host", "gpu"]
    """Private memory of the process, or memory in use on its GPUs."""
    bytes_per_second: Number
    """How fast it grows."""
    bytes_per_step: Number
    """How much a step adds."""
    since_step: int
    """Where the growth began, as far as the monitor followed it."""
    grown_bytes: int
    """How much it has grown since then."""
    left_seconds: Number | None = None
    """Until the memory of the machine, its cgroup or the GPUs is used up; null if not known."""
    recompiled: tuple[str, ...] = ()
    """Functions that compiled when the growth began."""


class WorkersMemory(Struct, frozen=True, kw_only=True):
    """Compile workers while nearly all memory is used."""

    workers: int
    """Number of compile workers."""
    workers_bytes: int
    """Their memory; shared pages count once."""
    used_bytes: int
    """Used memory of the machine or the cgroup, without pages of files that can be dropped."""
    limit_bytes: int
    """The limit of that memory."""
    cgroup: bool
    """Whether a cgroup sets the limit."""


class CompilingWorkers(Struct, frozen=True, kw_only=True):
    """What the workers of a training's `DataLoader`s compile, which is no activity of the rank."""

    compiling: int
    """Workers that compile now."""
    since: Epoch | None = None
    """Since when, of the first of them; null if none does."""
    for_seconds: Seconds | None = None
    """For how long, of the first of them; null if none does."""
    processes: int
    """Workers that have compiled so far. Without `persistent_workers`, each epoch has new ones."""
    at_once: int
    """The most of them that lived at one time."""
    seconds: Seconds
    """What they have compiled so far, added up over workers."""
    name: str | None = None
    """The function that compiled last; null if unknown."""


USED_BY_OTHERS = "other programs use the GPU"  # begins the evidence that a GPU is shared


class LimitedBy(Struct, frozen=True, kw_only=True):
    """What limits the speed of a rank that is warm or eager."""

    verdict: Annotated[str, Meta(extra_json_schema={"enum": list(LIMITS)})]
    """`input`: waiting for batches. `host`: gaps between kernels. `compute`, `memory`: arithmetic
    or bandwidth of the GPU. `communication`: collectives. `throttled`: reduced clocks. `shared`:
    other programs, or too few CPUs. `saving`, `evaluation`: time between steps. `waiting`: neither
    its processes nor its GPUs work, and no batch is awaited.
    """
    share: Number | None = None
    """Share of the time, 0 to 1; null where only the limit is known."""
    evidence: tuple[str, ...] = ()
    """The figures behind it, the most important first."""

    @property
    def subject(self) -> str:
        """The limit as a noun. Without evidence, what is ``shared`` is not known."""
        if self.verdict != "shared":
            return self.verdict
        of_gpu = any(one.startswith(USED_BY_OTHERS) for one in self.evidence)
        what = "GPU " if of_gpu else "CPU " if self.evidence else ""
        return f"{what}contention"


class Compiler(Struct, frozen=True, kw_only=True):
    """A compiler process below a training process."""

    pid: int
    """In the monitor's pid namespace."""
    name: str
    """`cc1plus`, `ptxas`, `compile worker`...: of a closed list."""
    cpu_seconds: Seconds
    """CPU time so far."""
    busy: bool | None = None
    """Whether its CPU time grows; null in the first poll."""
    stopped: bool = False
    """Stopped by a signal (SIGSTOP, Ctrl-Z) or a debugger."""


class Process(Struct, frozen=True, kw_only=True):
    """The training process and its compile workers, as the host measures them."""

    cpu_seconds: Seconds
    """CPU time so far."""
    resident_bytes: int
    """Resident memory, in bytes."""
    cpu_ratio: Number | None = None
    """Its share of one core in the last poll, from 0."""
    threads: int | None = None
    """Threads."""
    workers_busy: int | None = None
    """Compile workers whose CPU time grows."""
    workers_idle: int | None = None
    """Compile workers whose CPU time does not."""
    stopped: bool = False
    """Stopped by a signal (SIGSTOP, Ctrl-Z) or a debugger."""
    compilers: tuple[Compiler, ...] = ()
    """The busiest compilers below it, without idle compile workers."""


class GpuIdentity(Struct, frozen=True, kw_only=True):
    """The constant properties of a GPU or a MIG device."""

    uuid: str
    """NVML's UUID, the same everywhere."""
    index: int
    """NVML's index of the board, not CUDA's."""
    name: str | None = None
    """Product name."""
    driver: str | None = None
    """Version of the driver."""
    pci_bus_id: str | None = None
    """Its PCI bus id."""
    parent: str | None = None
    """For a MIG device, the UUID of its board."""
    profile: str | None = None
    """For a MIG device, its profile, such as `1g.10gb`."""


class GpuValues(GpuIdentity, frozen=True, kw_only=True):
    """What NVML reports of a GPU or a MIG device. What it does not support is null."""

    trouble: str | None = None
    """Why its other keys are null; null if nothing is wrong."""
    utilization_ratio: Number | None = None
    """Share of the last sample period in which any kernel ran, 0 to 1."""
    memory_utilization_ratio: Number | None = None
    """Share of the last sample period in which device memory was read or written, 0 to 1."""
    sm_active_ratio: Number | None = None
    """Activity of the multiprocessors since the last reading, 0 to 1."""
    tensor_active_ratio: Number | None = None
    """Activity of the tensor cores since the last reading, 0 to 1."""
    dram_active_ratio: Number | None = None
    """Share of the memory bandwidth used since the last reading, 0 to 1."""
    memory_used_bytes: int | None = None
    """Memory in use by all processes, bytes."""
    memory_total_bytes: int | None = None
    """Memory, bytes."""
    power_watts: Number | None = None
    """Power draw of the board, watts."""
    power_limit_watts: Number | None = None
    """Enforced power limit, watts."""
    idle_watts: Number | None = None
    """Lowest power measured while no kernel ran, watts."""
    temperature_celsius: Number | None = None
    """Temperature, degrees Celsius."""
    energy_joules: Joules | None = None
    """Energy since the driver was loaded."""
    xid_errors: int | None = None
    """Critical XID errors since the monitor began."""
    last_xid: int | None = None
    """Number of the latest XID error."""


class Host(Struct, frozen=True, kw_only=True):
    """The machine."""

    memory_total_bytes: int
    """Memory, bytes."""
    memory_available_bytes: int
    """Memory available to programs, bytes."""
    cpus: int
    """Logical CPUs."""
    load_1m: Number | None = None
    """The kernel's load average over a minute."""
    stolen_seconds: Number | None = None
    """CPU time of all CPUs since boot that the hypervisor gave to other machines."""
    pci_gpus: int | None = None
    """NVIDIA GPUs on the PCI bus, whether or not their driver works."""


class Spread(Struct, frozen=True, kw_only=True):
    """Minimum and maximum of a figure over the ranks."""

    min: Number
    """The least value."""
    min_rank: int
    """The rank with this value."""
    max: Number
    """The greatest value."""
    max_rank: int
    """The rank with this value."""


class SourceHealth(Struct, frozen=True, kw_only=True):
    """Health of a data source."""

    source: str
    """Its name: `records`, `host`, `nvml`, `observed`, ..."""
    up: bool
    """Whether the last read succeeded."""
    last_success: Epoch | None = None
    """When a read last succeeded; null if none has."""
    read_seconds: Seconds | None = None
    """How long the last read took."""
    error: str | None = None
    """What is wrong, in one sentence."""


class ExportHealth(Struct, frozen=True, kw_only=True):
    """Health of an export."""

    export: str
    """Its name: `otlp`."""
    up: bool | None = None
    """Whether the last export succeeded; null before the first."""
    last_success: Epoch | None = None
    """When an export last succeeded; null if none has."""
    error: str | None = None
    """What is wrong, in one sentence."""


class Refusal(Struct, frozen=True, kw_only=True):
    """Something in a record directory that cannot be read."""

    path: str
    """Its path."""
    reason: str
    """Why it cannot be read, in one sentence."""


_Copied = TypeVar("_Copied", bound=Struct)


def copied(value: Struct, type: type[_Copied], **given: Any) -> _Copied:
    """``value`` as a ``type``: its fields of the same name, and those that are ``given``.

    A field that both types gain needs no line where they meet.
    """
    same = {name: getattr(value, name) for name in _common(value.__class__, type)}
    return type(**{**same, **given})


@cache
def _common(source: type[Struct], target: type[Struct]) -> tuple[str, ...]:
    return tuple(name for name in target.__struct_fields__ if name in source.__struct_fields__)
