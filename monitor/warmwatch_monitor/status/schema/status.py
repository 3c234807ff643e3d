"""Schema of the ``/status`` document: status, runs and GPUs. The descriptions appear in
``/docs``.
"""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from warmwatch.shared.states import State
from warmwatch_monitor.status.schema.compile import Epoch, Joules, Number, Seconds
from warmwatch_monitor.status.schema.rank import Rank


class Gpu(Struct, frozen=True, kw_only=True):
    """A GPU, or a MIG device. What it does not support is null."""

    uuid: Annotated[str, Meta(description="NVML's UUID, the same everywhere.")]
    index: Annotated[int, Meta(description="NVML's index of the board, not CUDA's.")]
    name: Annotated[str | None, Meta(description="Product name.")] = None
    driver: Annotated[str | None, Meta(description="Version of the driver.")] = None
    pci_bus_id: Annotated[str | None, Meta(description="Its PCI bus id.")] = None
    parent: Annotated[str | None, Meta(description="For a MIG device, the UUID of its board.")] = (
        None
    )
    profile: Annotated[
        str | None, Meta(description="For a MIG device, its profile, such as `1g.10gb`.")
    ] = None
    trouble: Annotated[
        str | None, Meta(description="Why its other keys are null; null if nothing is wrong.")
    ] = None
    utilization_ratio: Annotated[
        Number | None,
        Meta(description="Share of the last sample period in which any kernel ran, 0 to 1."),
    ] = None
    memory_utilization_ratio: Annotated[
        Number | None,
        Meta(
            description="Share of the last sample period in which device memory was read or "
            "written, 0 to 1."
        ),
    ] = None
    sm_active_ratio: Annotated[
        Number | None,
        Meta(description="Activity of the multiprocessors since the last reading, 0 to 1."),
    ] = None
    tensor_active_ratio: Annotated[
        Number | None,
        Meta(description="Activity of the tensor cores since the last reading, 0 to 1."),
    ] = None
    dram_active_ratio: Annotated[
        Number | None,
        Meta(description="Share of the memory bandwidth used since the last reading, 0 to 1."),
    ] = None
    memory_used_bytes: Annotated[
        int | None, Meta(description="Memory in use by all processes, bytes.")
    ] = None
    memory_total_bytes: Annotated[int | None, Meta(description="Memory, bytes.")] = None
    power_watts: Annotated[Number | None, Meta(description="Power draw of the board, watts.")] = (
        None
    )
    power_limit_watts: Annotated[
        Number | None, Meta(description="Enforced power limit, watts.")
    ] = None
    idle_watts: Annotated[
        Number | None, Meta(description="Lowest power measured while no kernel ran, watts.")
    ] = None
    temperature_celsius: Annotated[
        Number | None, Meta(description="Temperature, degrees Celsius.")
    ] = None
    energy_joules: Annotated[
        Joules | None, Meta(description="Energy since the driver was loaded.")
    ] = None
    xid_errors: Annotated[
        int | None, Meta(description="Critical XID errors since the monitor began.")
    ] = None
    last_xid: Annotated[int | None, Meta(description="Number of the latest XID error.")] = None
    clocks_hertz: Annotated[
        dict[str, Number] | None, Meta(description="Clocks by domain, hertz.")
    ] = None
    throttled: Annotated[
        list[str] | None, Meta(description="Why the clocks are reduced now; empty: they are not.")
    ] = None
    ecc_errors: Annotated[
        dict[str, int] | None, Meta(description="ECC errors by kind, since the driver was loaded.")
    ] = None
    age: Annotated[Seconds, Meta(description="Time since this was read.")]


class Spread(Struct, frozen=True, kw_only=True):
    """Minimum and maximum of a figure over the ranks."""

    min: Annotated[Number, Meta(description="The least value.")]
    min_rank: Annotated[int, Meta(description="The rank with this value.")]
    max: Annotated[Number, Meta(description="The greatest value.")]
    max_rank: Annotated[int, Meta(description="The rank with this value.")]


class Deadline(Struct, frozen=True, kw_only=True):
    """When the collective times out in which ranks wait for one that compiles."""

    backend: Annotated[
        str | None, Meta(description="Backend of the process group, such as `nccl`.")
    ] = None
    timeout_seconds: Annotated[
        Seconds, Meta(description="Timeout of the rank with the least time left.")
    ]
    left_seconds: Annotated[Seconds, Meta(description="Lower bound of the time left.")]
    advice: Annotated[str, Meta(description="How to raise the timeout.")]


class Skew(Struct, frozen=True, kw_only=True):
    """How far apart the ranks of a run are. A figure is null unless two ranks have it."""

    compile_seconds: Annotated[Spread | None, Meta(description="Compile time, in seconds.")] = None
    compilations: Annotated[Spread | None, Meta(description="Graphs compiled.")] = None
    graphs: Annotated[Spread | None, Meta(description="Graphs captured.")] = None
    recompiles: Annotated[Spread | None, Meta(description="Recompiles.")] = None
    first_step_at: Annotated[
        Spread | None, Meta(description="End of step 1, seconds since the epoch.")
    ] = None
    differences: Annotated[
        list[str], Meta(description="Differences between the ranks, once all are warm.")
    ]


class Run(Struct, frozen=True, kw_only=True):
    """A training job, with those of its ranks that are seen here."""

    run: Annotated[
        str,
        Meta(
            description="Its name here. A run of another user than the monitor's ends with its "
            "owner: `gpt2@alice`."
        ),
    ]
    name: Annotated[str | None, Meta(description="Its name, as set by its user.")] = None
    owner: Annotated[
        str | None,
        Meta(description="The user who owns it, by name if there is one; null if it is unknown."),
    ] = None
    owner_uid: Annotated[
        int | None, Meta(description="The owner's uid in the monitor's user namespace.")
    ] = None
    state: Annotated[State, Meta(description="State of its least advanced living rank.")]
    compiling: Annotated[
        bool | None, Meta(description="Whether any living rank compiles; null if none lives.")
    ] = None
    warm: Annotated[
        bool | None, Meta(description="Whether all living ranks are warm; null if none lives.")
    ] = None
    summary: Annotated[
        str,
        Meta(
            description="The answer for this run, in one sentence of at most 120 characters. A "
            "long name is shortened."
        ),
    ]
    details: Annotated[
        list[str],
        Meta(
            description="Other facts, one clause each, the most important first. None of them is "
            "in `summary`."
        ),
    ] = []
    compile_gpu_seconds: Annotated[
        Seconds | None,
        Meta(
            description="Compile time multiplied by GPUs, of all ranks; null if no rank reports "
            "a GPU."
        ),
    ] = None
    compile_joules: Annotated[
        Joules | None,
        Meta(
            description="Energy of the ranks' GPUs while they compiled; null if none was measured."
        ),
    ] = None
    world_size: Annotated[
        int | None, Meta(description="Number of ranks of the whole run, as set by the launcher.")
    ] = None
    missing_ranks: Annotated[
        list[int],
        Meta(description="Ranks that are not seen here, the first 100."),
    ]
    missing_ranges: Annotated[
        list[tuple[int, int]],
        Meta(
            description="Ranks that are not seen here as ranges `[first, last]`, the first 100 "
            "ranges."
        ),
    ]
    missing_count: Annotated[int, Meta(description="Number of ranks that are not seen here.")]
    skew: Annotated[
        Skew | None, Meta(description="How far apart the ranks are; null with one rank.")
    ] = None
    deadline: Annotated[
        Deadline | None,
        Meta(
            description="When the collective times out in which ranks wait for one that compiles; "
            "null if none waits, or if no timeout is known."
        ),
    ] = None
    ranks: Annotated[list[Rank], Meta(min_length=1, description="Its ranks, in order.")]


SCHEMA_VERSION = 1  # within it, no key changes its meaning
STATUS_DESCRIPTION = (
    "Whether torch.compile is still compiling, with the evidence. `compiling` and `warm` are null "
    "if no run lives. What is not known is null. Times are seconds since the epoch, durations are "
    "seconds. The answer has everything that was recorded before `at`. Keys may be added; within "
    "one `schema_version` none changes its meaning."
)


class Workers(Struct, frozen=True, kw_only=True):
    """Compile workers."""

    busy: Annotated[int, Meta(description="Compile workers whose CPU time grows.")]
    idle: Annotated[int, Meta(description="The other compile workers.")]


class Observed(Struct, frozen=True, kw_only=True):
    """A process without the agent that looks like a training."""

    pid: Annotated[int, Meta(description="Its pid on this host.")]
    command: Annotated[str, Meta(description="Its command, without arguments.")]
    gpus: Annotated[list[str], Meta(description="UUIDs of the GPUs on which NVML lists it.")]
    workers: Annotated[
        Workers | None, Meta(description="Its compile workers; null before the second poll.")
    ] = None
    cpu_ratio: Annotated[
        Number | None, Meta(description="Its share of one core in the last poll, from 0.")
    ] = None
    likely_compiling: Annotated[
        bool | None, Meta(description="Whether it probably compiles; null if that is unknown.")
    ] = None
    evidence: Annotated[list[str], Meta(description="What was observed, one clause each.")]


class Host(Struct, frozen=True, kw_only=True):
    """The machine."""

    memory_total_bytes: Annotated[int, Meta(description="Memory, bytes.")]
    memory_available_bytes: Annotated[int, Meta(description="Memory available to programs, bytes.")]
    cpus: Annotated[int, Meta(description="Logical CPUs.")]
    load_1m: Annotated[
        Number | None, Meta(description="The kernel's load average over a minute.")
    ] = None
    stolen_seconds: Annotated[
        Number | None,
        Meta(
            description="CPU time of all CPUs since boot that the hypervisor gave to other "
            "machines."
        ),
    ] = None
    pci_gpus: Annotated[
        int | None,
        Meta(description="NVIDIA GPUs on the PCI bus, whether or not their driver works."),
    ] = None


class Source(Struct, frozen=True, kw_only=True):
    """Health of a data source."""

    source: Annotated[str, Meta(description="Its name: `records`, `host`, `nvml`, `observed`, ...")]
    up: Annotated[bool, Meta(description="Whether the last read succeeded.")]
    last_success: Annotated[
        Epoch | None, Meta(description="When a read last succeeded; null if none has.")
    ] = None
    read_seconds: Annotated[Seconds | None, Meta(description="How long the last read took.")] = None
    error: Annotated[str | None, Meta(description="What is wrong, in one sentence.")] = None


class Export(Struct, frozen=True, kw_only=True):
    """Health of an export."""

    export: Annotated[str, Meta(description="Its name: `otlp`.")]
    up: Annotated[
        bool | None, Meta(description="Whether the last export succeeded; null before the first.")
    ] = None
    last_success: Annotated[
        Epoch | None, Meta(description="When an export last succeeded; null if none has.")
    ] = None
    error: Annotated[str | None, Meta(description="What is wrong, in one sentence.")] = None


class Refusal(Struct, frozen=True, kw_only=True):
    """Something in a record directory that cannot be read."""

    path: Annotated[str, Meta(description="Its path.")]
    reason: Annotated[str, Meta(description="Why it cannot be read, in one sentence.")]


class LeftOut(Struct, frozen=True, kw_only=True):
    """How much is left out, because it exceeds the budget of a user or of all users."""

    records: Annotated[
        int, Meta(description="Records that were not read, because their users have newer ones.")
    ]
    ranks: Annotated[int, Meta(description="Ranks that were read and are left out.")]
    gpus: Annotated[
        int, Meta(description="GPUs that ranks report and NVML does not: they have no series.")
    ]


class Status(Struct, frozen=True, kw_only=True):
    """The whole document."""

    schema_version: Annotated[
        int, Meta(description="1. Within a version, no key changes its meaning.")
    ]
    at: Annotated[
        Epoch | None,
        Meta(
            description="When the poll of the records began that this answer rests on; null "
            "without one."
        ),
    ] = None
    compiling: Annotated[
        bool | None,
        Meta(
            description="Whether any living rank has compile activity now; null if no rank lives."
        ),
    ] = None
    warm: Annotated[
        bool | None,
        Meta(description="Whether every living rank is warm or eager; null if no rank lives."),
    ] = None
    summary: Annotated[
        str,
        Meta(
            description="The answer in one sentence of at most 120 characters, about living runs "
            "if there are any."
        ),
    ]
    details: Annotated[
        list[str],
        Meta(
            description="Other facts, one clause each, the most important first: details of the "
            "only living run, or summaries of the living runs; then runs that ended."
        ),
    ] = []
    runs: Annotated[list[Run], Meta(description="The runs, by name.")]
    observed: Annotated[list[Observed], Meta(description="Trainings without the agent.")] = []
    gpus: Annotated[list[Gpu], Meta(description="The GPUs of this host.")]
    host: Annotated[Host | None, Meta(description="The machine; null if it could not be read.")] = (
        None
    )
    sources: Annotated[list[Source], Meta(description="Health of the monitor's data sources.")]
    exports: Annotated[list[Export], Meta(description="Health of the monitor's exports.")] = []
    directories: Annotated[
        list[str], Meta(description="The record directories that it watches.")
    ] = []
    refusals: Annotated[
        list[Refusal], Meta(description="Records in these directories that cannot be read.")
    ]
    more_refusals: Annotated[int, Meta(description="Number of refusals that are not listed.")]
    unread_records: Annotated[
        int, Meta(description="Number of records that have not been read yet.")
    ]
    left_out: Annotated[
        LeftOut, Meta(description="What this answer leaves out, because it exceeds a budget.")
    ]
    left_out_uids: Annotated[
        list[int],
        Meta(
            description="Uids of users whose records are left out, 100 at most. Only their runs "
            "may exist without being listed, unless `incomplete` gives another reason."
        ),
    ] = []
    incomplete: Annotated[
        str | None,
        Meta(
            description="Why a run may exist that is not listed, in one sentence; null if all "
            "records were read that their users' limits allow."
        ),
    ] = None
    reached: Annotated[
        bool | UnsetType,
        Meta(description="Only with `wait`: whether the state was reached before the timeout."),
    ] = UNSET


class Problem(Struct, frozen=True, kw_only=True):
    """Why there is no document."""

    detail: Annotated[str, Meta(description="What is wrong and what to do, in one sentence.")]
