"""Schema of the ``/status`` document: status, runs and GPUs. The descriptions appear in
``/docs``.
"""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from warmwatch.shared.states import State
from warmwatch_monitor.status.schema.compile import Epoch, Joules, Number, Seconds
from warmwatch_monitor.status.schema.rank import Rank


class Gpu(Struct, frozen=True, kw_only=True):
    """One GPU, or one MIG device. What it does not support is null."""

    uuid: Annotated[str, Meta(description="NVML's name for it, the same everywhere.")]
    index: Annotated[int, Meta(description="NVML's, of the board; not CUDA's.")]
    name: Annotated[str | None, Meta(description="The product.")] = None
    driver: Annotated[str | None, Meta(description="Version of the driver.")] = None
    pci_bus_id: Annotated[str | None, Meta(description="Where it is plugged in.")] = None
    parent: Annotated[str | None, Meta(description="Of a MIG device the uuid of its board.")] = None
    profile: Annotated[
        str | None, Meta(description="Of a MIG device its size, such as `1g.10gb`.")
    ] = None
    trouble: Annotated[str | None, Meta(description="Why nothing more is known of it.")] = None
    utilization_ratio: Annotated[
        Number | None,
        Meta(description="Share of the last sample period in which any kernel ran, 0 to 1."),
    ] = None
    memory_utilization_ratio: Annotated[
        Number | None,
        Meta(description="Share of it in which device memory was read or written, 0 to 1."),
    ] = None
    sm_active_ratio: Annotated[
        Number | None,
        Meta(description="How busy the multiprocessors were since the last reading, 0 to 1."),
    ] = None
    tensor_active_ratio: Annotated[
        Number | None,
        Meta(description="How busy the tensor cores were since the last reading, 0 to 1."),
    ] = None
    dram_active_ratio: Annotated[
        Number | None,
        Meta(description="Memory bandwidth used since the last reading, of what there is, 0 to 1."),
    ] = None
    memory_used_bytes: Annotated[
        int | None, Meta(description="Memory in use by all processes, bytes.")
    ] = None
    memory_total_bytes: Annotated[int | None, Meta(description="Memory, bytes.")] = None
    power_watts: Annotated[Number | None, Meta(description="Power draw of the board, watts.")] = (
        None
    )
    power_limit_watts: Annotated[
        Number | None, Meta(description="Limit that is enforced, watts.")
    ] = None
    idle_watts: Annotated[
        Number | None, Meta(description="Least power seen while no kernel ran, watts.")
    ] = None
    temperature_celsius: Annotated[
        Number | None, Meta(description="Temperature, degrees Celsius.")
    ] = None
    energy_joules: Annotated[Joules | None, Meta(description="Since the driver was loaded.")] = None
    xid_errors: Annotated[
        int | None, Meta(description="Critical XID errors since the monitor began.")
    ] = None
    last_xid: Annotated[int | None, Meta(description="Number of the latest of them.")] = None
    clocks_hertz: Annotated[
        dict[str, Number] | None, Meta(description="Clocks by domain, hertz.")
    ] = None
    throttled: Annotated[list[str] | None, Meta(description="What holds the clocks down now.")] = (
        None
    )
    ecc_errors: Annotated[
        dict[str, int] | None, Meta(description="By kind, since the driver was loaded.")
    ] = None
    age: Annotated[Seconds, Meta(description="How long ago all this was read.")]


class Spread(Struct, frozen=True, kw_only=True):
    """How far apart the ranks are in one figure."""

    min: Annotated[Number, Meta(description="The least value.")]
    min_rank: Annotated[int, Meta(description="The rank that has it.")]
    max: Annotated[Number, Meta(description="The greatest value.")]
    max_rank: Annotated[int, Meta(description="The rank that has it.")]


class Deadline(Struct, frozen=True, kw_only=True):
    """How long ranks can go on waiting for one that compiles."""

    backend: Annotated[str | None, Meta(description="Of the process group, such as `nccl`.")] = None
    timeout_seconds: Annotated[
        Seconds, Meta(description="Its timeout, of the rank that has least left.")
    ]
    left_seconds: Annotated[Seconds, Meta(description="The least that may be left of it.")]
    advice: Annotated[str, Meta(description="What raises it.")]


class Skew(Struct, frozen=True, kw_only=True):
    """How far apart the ranks of a run are; a figure is null where fewer than two know it."""

    compile_seconds: Annotated[Spread | None, Meta(description="Compile time, in seconds.")] = None
    compilations: Annotated[Spread | None, Meta(description="Graphs compiled.")] = None
    graphs: Annotated[Spread | None, Meta(description="Graphs captured.")] = None
    recompiles: Annotated[Spread | None, Meta(description="Recompiles.")] = None
    first_step_at: Annotated[
        Spread | None, Meta(description="End of step 1, seconds since the epoch.")
    ] = None
    differences: Annotated[
        list[str], Meta(description="What they did otherwise, once all are warm.")
    ]


class Run(Struct, frozen=True, kw_only=True):
    """One training job, with those of its ranks that are seen here."""

    run: Annotated[
        str,
        Meta(
            description="Its name here: a run of another user than the monitor's has its owner "
            "behind it, `gpt2@alice`."
        ),
    ]
    name: Annotated[str | None, Meta(description="Its name as its user gave it.")] = None
    owner: Annotated[
        str | None,
        Meta(
            description="The user whose it is, a number where he has no name; null where nobody "
            "knows."
        ),
    ] = None
    owner_uid: Annotated[
        int | None, Meta(description="His number, of the monitor's user namespace.")
    ] = None
    state: Annotated[State, Meta(description="That of its least advanced living rank.")]
    compiling: Annotated[
        bool | None, Meta(description="Any living rank compiles; null where none lives.")
    ] = None
    warm: Annotated[
        bool | None, Meta(description="All living ranks are warm; null where none lives.")
    ] = None
    summary: Annotated[
        str,
        Meta(
            description="The answer for this run, in one sentence of at most 120 characters; a "
            "long name is shortened in it."
        ),
    ]
    details: Annotated[
        list[str],
        Meta(
            description="What else is true of it, one clause each, the most important first. None "
            "of them is in `summary`."
        ),
    ] = []
    compile_gpu_seconds: Annotated[
        Seconds | None,
        Meta(description="Compile time times GPUs, of all ranks; null where none told of a GPU."),
    ] = None
    compile_joules: Annotated[
        Joules | None,
        Meta(description="Energy of their GPUs while they compiled; null where none was measured."),
    ] = None
    world_size: Annotated[
        int | None, Meta(description="Ranks of the whole run, as its launcher says.")
    ] = None
    missing_ranks: Annotated[
        list[int],
        Meta(
            description="Those of them that are not seen here, the first 100; all are in "
            "`missing_ranges`."
        ),
    ]
    missing_ranges: Annotated[
        list[tuple[int, int]],
        Meta(
            description="The same as ranges, each with its first and last rank; the first 100 "
            "ranges."
        ),
    ]
    missing_count: Annotated[
        int, Meta(description="How many ranks are not seen here, all counted.")
    ]
    skew: Annotated[
        Skew | None, Meta(description="How far apart the ranks are; null of one alone.")
    ] = None
    deadline: Annotated[
        Deadline | None,
        Meta(
            description="When the collective gives up in which ranks wait for one that compiles; "
            "null where none waits, or no timeout is known."
        ),
    ] = None
    ranks: Annotated[list[Rank], Meta(min_length=1, description="Its ranks, in order.")]


SCHEMA_VERSION = 1  # within it, no key changes its meaning
STATUS_DESCRIPTION = (
    "Whether torch.compile is still at work, with the evidence. `compiling` and `warm` are null "
    "where no run lives. What is not known is null. Times are seconds since the epoch, durations "
    "seconds; `at` is when the records were read: all that was recorded by then is in the answer. "
    "Keys may be added; within one `schema_version` none changes its meaning."
)


class Workers(Struct, frozen=True, kw_only=True):
    """Compile workers."""

    busy: Annotated[int, Meta(description="Those whose CPU time grows.")]
    idle: Annotated[int, Meta(description="The others.")]


class Observed(Struct, frozen=True, kw_only=True):
    """A process that looks like a training and has no agent, as it shows from outside."""

    pid: Annotated[int, Meta(description="On this host.")]
    command: Annotated[str, Meta(description="What it runs, without its arguments.")]
    gpus: Annotated[list[str], Meta(description="Uuids of the GPUs that it is listed on.")]
    workers: Annotated[
        Workers | None, Meta(description="Null where they were not looked at twice.")
    ] = None
    cpu_ratio: Annotated[
        Number | None, Meta(description="Its use of one core at the last look, from 0.")
    ] = None
    likely_compiling: Annotated[bool | None, Meta(description="Null where nobody can tell.")] = None
    evidence: Annotated[list[str], Meta(description="The signs, in words.")]


class Host(Struct, frozen=True, kw_only=True):
    """The machine itself."""

    memory_total_bytes: Annotated[int, Meta(description="Memory, bytes.")]
    memory_available_bytes: Annotated[
        int, Meta(description="Memory that programs can still get, bytes.")
    ]
    cpus: Annotated[int, Meta(description="Logical CPUs.")]
    load_1m: Annotated[
        Number | None, Meta(description="The kernel's load average over a minute.")
    ] = None
    stolen_seconds: Annotated[
        Number | None,
        Meta(
            description="CPU time since the boot that the hypervisor gave to other machines, of "
            "all CPUs together."
        ),
    ] = None
    pci_gpus: Annotated[
        int | None,
        Meta(description="NVIDIA GPUs on the PCI bus, whether or not their driver works."),
    ] = None


class Source(Struct, frozen=True, kw_only=True):
    """How something that the monitor reads fares."""

    source: Annotated[str, Meta(description="Its name: `records`, `host`, `nvml`, `observed`, ...")]
    up: Annotated[bool, Meta(description="Whether the last read succeeded.")]
    last_success: Annotated[
        Epoch | None, Meta(description="When one last did; null where none has.")
    ] = None
    read_seconds: Annotated[Seconds | None, Meta(description="How long the last read took.")] = None
    error: Annotated[str | None, Meta(description="What is wrong, in one sentence.")] = None


class Export(Struct, frozen=True, kw_only=True):
    """How something that the monitor sends to fares."""

    export: Annotated[str, Meta(description="Its name: `otlp`.")]
    up: Annotated[
        bool | None, Meta(description="Whether the last one was taken; null before the first.")
    ] = None
    last_success: Annotated[
        Epoch | None, Meta(description="When one last was; null where none has been.")
    ] = None
    error: Annotated[str | None, Meta(description="What is wrong, in one sentence.")] = None


class Refusal(Struct, frozen=True, kw_only=True):
    """Something in a record directory that cannot be read."""

    path: Annotated[str, Meta(description="Where it lies.")]
    reason: Annotated[str, Meta(description="Why, in one sentence.")]


class LeftOut(Struct, frozen=True, kw_only=True):
    """How much is left out, because it is beyond the budget of a user or of all."""

    records: Annotated[
        int, Meta(description="Records that are not read: their users have newer ones.")
    ]
    ranks: Annotated[int, Meta(description="Ranks that were read and are not shown.")]
    gpus: Annotated[
        int, Meta(description="GPUs that ranks name and NVML does not know: no series.")
    ]


class Status(Struct, frozen=True, kw_only=True):
    """The whole answer."""

    schema_version: Annotated[int, Meta(description="1. Within it, no key changes its meaning.")]
    at: Annotated[
        Epoch | None,
        Meta(
            description="When the look at the records began that this rests on; null where none "
            "did."
        ),
    ] = None
    compiling: Annotated[
        bool | None,
        Meta(
            description="Any living rank of any run has compile activity now; null where none "
            "lives."
        ),
    ] = None
    warm: Annotated[
        bool | None,
        Meta(description="Nothing is left to wait for in any living rank; null where none lives."),
    ] = None
    summary: Annotated[
        str,
        Meta(
            description="The answer in one sentence of at most 120 characters: of runs that live, "
            "as long as one does."
        ),
    ]
    details: Annotated[
        list[str],
        Meta(
            description="What `summary` has no room for, one clause each, the most important "
            "first: the details of the only run that lives, or the summaries of those that do; "
            "then what ended."
        ),
    ] = []
    runs: Annotated[list[Run], Meta(description="The runs, by name.")]
    observed: Annotated[list[Observed], Meta(description="Trainings without the agent.")] = []
    gpus: Annotated[list[Gpu], Meta(description="The GPUs of this host.")]
    host: Annotated[Host | None, Meta(description="Null where it could not be read.")] = None
    sources: Annotated[
        list[Source], Meta(description="What the monitor reads, and how that fares.")
    ]
    exports: Annotated[list[Export], Meta(description="What it sends, and how that fares.")] = []
    directories: Annotated[
        list[str], Meta(description="The record directories that it watches.")
    ] = []
    refusals: Annotated[list[Refusal], Meta(description="What in them cannot be read.")]
    more_refusals: Annotated[int, Meta(description="How many more there are than are listed.")]
    unread_records: Annotated[int, Meta(description="How many records have not been read yet.")]
    left_out: Annotated[
        LeftOut, Meta(description="What is beyond a budget and not in this answer.")
    ]
    left_out_uids: Annotated[
        list[int],
        Meta(
            description="The users who own records that are left out, 100 at most. Only their "
            "runs may exist without being listed, unless `incomplete` gives another reason."
        ),
    ] = []
    incomplete: Annotated[
        str | None,
        Meta(
            description="Why a run that is not listed may exist all the same, in one sentence; "
            "null where all records were read that the limits of their users allow."
        ),
    ] = None
    reached: Annotated[
        bool | UnsetType,
        Meta(description="With `wait` alone: whether that came before the timeout."),
    ] = UNSET


class Problem(Struct, frozen=True, kw_only=True):
    """Why there is no answer."""

    detail: Annotated[
        str, Meta(description="What is wrong and what would be right, in one sentence.")
    ]
