"""Schema of the ``/status`` document: status, runs and GPUs. The descriptions appear in
``/docs``.
"""

from __future__ import annotations

from pydantic import BaseModel, Field

from warmwatch.shared.verdict import State
from warmwatch_monitor.status.schema.compile import Epoch, Joules, Seconds
from warmwatch_monitor.status.schema.rank import Rank


class Gpu(BaseModel):
    """One GPU, or one MIG device. What it does not support is null."""

    uuid: str = Field(description="NVML's name for it, the same everywhere.")
    index: int = Field(description="NVML's, of the board; not CUDA's.")
    name: str | None = Field(description="The product.")
    driver: str | None = Field(description="Version of the driver.")
    pci_bus_id: str | None = Field(description="Where it is plugged in.")
    parent: str | None = Field(description="Of a MIG device the uuid of its board.")
    profile: str | None = Field(description="Of a MIG device its size, such as `1g.10gb`.")
    trouble: str | None = Field(description="Why nothing more is known of it.")
    utilization_ratio: float | None = Field(
        description="Share of the last sample period in which any kernel ran, 0 to 1."
    )
    memory_utilization_ratio: float | None = Field(
        description="Share of it in which device memory was read or written, 0 to 1."
    )
    sm_active_ratio: float | None = Field(
        description="How busy the multiprocessors were since the last reading, 0 to 1."
    )
    tensor_active_ratio: float | None = Field(
        description="How busy the tensor cores were since the last reading, 0 to 1."
    )
    dram_active_ratio: float | None = Field(
        description="Memory bandwidth used since the last reading, of what there is, 0 to 1."
    )
    memory_used_bytes: int | None = Field(description="Memory in use by all processes, bytes.")
    memory_total_bytes: int | None = Field(description="Memory, bytes.")
    power_watts: float | None = Field(description="Power draw of the board, watts.")
    power_limit_watts: float | None = Field(description="Limit that is enforced, watts.")
    idle_watts: float | None = Field(description="Least power seen while no kernel ran, watts.")
    temperature_celsius: float | None = Field(description="Temperature, degrees Celsius.")
    energy_joules: Joules | None = Field(description="Since the driver was loaded.")
    xid_errors: int | None = Field(description="Critical XID errors since the monitor began.")
    last_xid: int | None = Field(description="Number of the latest of them.")
    clocks_hertz: dict[str, float] | None = Field(description="Clocks by domain, hertz.")
    throttled: list[str] | None = Field(description="What holds the clocks down now.")
    ecc_errors: dict[str, int] | None = Field(description="By kind, since the driver was loaded.")
    age: Seconds = Field(description="How long ago all this was read.")


class Spread(BaseModel):
    """How far apart the ranks are in one figure."""

    min: float = Field(description="The least value.")
    min_rank: int = Field(description="The rank that has it.")
    max: float = Field(description="The greatest value.")
    max_rank: int = Field(description="The rank that has it.")


class Deadline(BaseModel):
    """How long ranks can go on waiting for one that compiles."""

    backend: str | None = Field(description="Of the process group, such as `nccl`.")
    timeout_seconds: Seconds = Field(description="Its timeout, of the rank that has least left.")
    left_seconds: Seconds = Field(description="The least that may be left of it.")
    advice: str = Field(description="What raises it.")


class Skew(BaseModel):
    """How far apart the ranks of a run are; a figure is null where fewer than two know it."""

    compile_seconds: Spread | None = Field(description="Compile time, in seconds.")
    compilations: Spread | None = Field(description="Graphs compiled.")
    graphs: Spread | None = Field(description="Graphs captured.")
    recompiles: Spread | None = Field(description="Recompiles.")
    first_step_at: Spread | None = Field(description="End of step 1, seconds since the epoch.")
    differences: list[str] = Field(description="What they did otherwise, once all are warm.")


class Run(BaseModel):
    """One training job, with those of its ranks that are seen here."""

    run: str = Field(
        description="Its name here: a run of another user than the monitor's has its owner behind "
        "it, `gpt2@alice`."
    )
    name: str | None = Field(description="Its name as its user gave it.")
    owner: str | None = Field(
        description="The user whose it is, a number where he has no name; null where nobody knows."
    )
    owner_uid: int | None = Field(description="His number, of the monitor's user namespace.")
    state: State = Field(description="That of its least advanced living rank.")
    compiling: bool | None = Field(description="Any living rank compiles; null where none lives.")
    warm: bool | None = Field(description="All living ranks are warm; null where none lives.")
    summary: str = Field(
        description="The answer for this run, in one sentence of at most 120 characters; a long "
        "name is shortened in it."
    )
    details: list[str] = Field(
        description="What else is true of it, one clause each, the most important first. None of "
        "them is in `summary`."
    )
    compile_gpu_seconds: Seconds | None = Field(
        description="Compile time times GPUs, of all ranks; null where none told of a GPU."
    )
    compile_joules: Joules | None = Field(
        description="Energy of their GPUs while they compiled; null where none was measured."
    )
    world_size: int | None = Field(description="Ranks of the whole run, as its launcher says.")
    missing_ranks: list[int] = Field(
        description="Those of them that are not seen here, the first 100; all are in "
        "`missing_ranges`."
    )
    missing_ranges: list[tuple[int, int]] = Field(
        description="The same as ranges, each with its first and last rank; the first 100 ranges."
    )
    missing_count: int = Field(description="How many ranks are not seen here, all counted.")
    skew: Skew | None = Field(description="How far apart the ranks are; null of one alone.")
    deadline: Deadline | None = Field(
        description="When the collective gives up in which ranks wait for one that compiles; null "
        "where none waits, or no timeout is known."
    )
    ranks: list[Rank] = Field(description="Its ranks, in order.")


STATUS_DESCRIPTION = (
    "Whether torch.compile is still at work, with the evidence. `compiling` and `warm` are null "
    "where no run lives. What is not known is null. Times are seconds since the epoch, durations "
    "seconds; `at` is when the records were read: all that was recorded by then is in the answer. "
    "Keys may be added; within one `schema_version` none changes its meaning."
)


class Workers(BaseModel):
    """Compile workers."""

    busy: int = Field(description="Those whose CPU time grows.")
    idle: int = Field(description="The others.")


class Observed(BaseModel):
    """A process that looks like a training and has no agent, as it shows from outside."""

    pid: int = Field(description="On this host.")
    command: str = Field(description="What it runs, without its arguments.")
    gpus: list[str] = Field(description="Uuids of the GPUs that it is listed on.")
    workers: Workers | None = Field(description="Null where they were not looked at twice.")
    cpu_ratio: float | None = Field(description="Its use of one core at the last look, from 0.")
    likely_compiling: bool | None = Field(description="Null where nobody can tell.")
    evidence: list[str] = Field(description="The signs, in words.")


class Host(BaseModel):
    """The machine itself."""

    memory_total_bytes: int = Field(description="Memory, bytes.")
    memory_available_bytes: int = Field(description="Memory that programs can still get, bytes.")
    cpus: int = Field(description="Logical CPUs.")
    load_1m: float | None = Field(description="The kernel's load average over a minute.")
    stolen_seconds: float | None = Field(
        description="CPU time since the boot that the hypervisor gave to other machines, of "
        "all CPUs together."
    )
    pci_gpus: int | None = Field(
        description="NVIDIA GPUs on the PCI bus, whether or not their driver works."
    )


class Source(BaseModel):
    """How something that the monitor reads fares."""

    source: str = Field(description="Its name: `records`, `host`, `nvml`, `observed`, ...")
    up: bool = Field(description="Whether the last read succeeded.")
    last_success: Epoch | None = Field(description="When one last did; null where none has.")
    read_seconds: Seconds | None = Field(description="How long the last read took.")
    error: str | None = Field(description="What is wrong, in one sentence.")


class Export(BaseModel):
    """How something that the monitor sends to fares."""

    export: str = Field(description="Its name: `otlp`.")
    up: bool | None = Field(description="Whether the last one was taken; null before the first.")
    last_success: Epoch | None = Field(description="When one last was; null where none has been.")
    error: str | None = Field(description="What is wrong, in one sentence.")


class Refusal(BaseModel):
    """Something in a record directory that cannot be read."""

    path: str = Field(description="Where it lies.")
    reason: str = Field(description="Why, in one sentence.")


class LeftOut(BaseModel):
    """How much is left out, because it is beyond the budget of a user or of all."""

    records: int = Field(description="Records that are not read: their users have newer ones.")
    ranks: int = Field(description="Ranks that were read and are not shown.")
    gpus: int = Field(description="GPUs that ranks name and NVML does not know: no series.")


class Status(BaseModel):
    """The whole answer."""

    schema_version: int = Field(description="1. Within it, no key changes its meaning.")
    at: Epoch | None = Field(
        description="When the look at the records began that this rests on; null where none did."
    )
    compiling: bool | None = Field(
        description="Any living rank of any run has compile activity now; null where none lives."
    )
    warm: bool | None = Field(
        description="Nothing is left to wait for in any living rank; null where none lives."
    )
    summary: str = Field(
        description="The answer in one sentence of at most 120 characters: of runs that live, as "
        "long as one does."
    )
    details: list[str] = Field(
        description="What `summary` has no room for, one clause each, the most important first: "
        "the details of the only run that lives, or the summaries of those that do; then what "
        "ended."
    )
    runs: list[Run] = Field(description="The runs, by name.")
    observed: list[Observed] = Field(description="Trainings without the agent.")
    gpus: list[Gpu] = Field(description="The GPUs of this host.")
    host: Host | None = Field(description="Null where it could not be read.")
    sources: list[Source] = Field(description="What the monitor reads, and how that fares.")
    exports: list[Export] = Field(description="What it sends, and how that fares.")
    directories: list[str] = Field(description="The record directories that it watches.")
    refusals: list[Refusal] = Field(description="What in them cannot be read.")
    more_refusals: int = Field(description="How many more there are than are listed.")
    unread_records: int = Field(description="How many records have not been read yet.")
    left_out: LeftOut = Field(description="What is beyond a budget and not in this answer.")
    left_out_uids: list[int] = Field(
        description="The users who own records that are left out, 100 at most. Only their runs may "
        "exist without being listed, unless `incomplete` gives another reason."
    )
    incomplete: str | None = Field(
        description="Why a run that is not listed may exist all the same, in one sentence; null "
        "where all records were read that the limits of their users allow."
    )
    reached: bool | None = Field(
        default=None, description="With `wait` alone: whether that came before the timeout."
    )


class Problem(BaseModel):
    """Why there is no answer."""

    detail: str = Field(description="What is wrong and what would be right, in one sentence.")
