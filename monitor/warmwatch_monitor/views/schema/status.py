"""The whole ``/status`` answer, and the refusal in its place."""

from __future__ import annotations

from pydantic import BaseModel, Field

from warmwatch_monitor.views.schema.gpus import Gpu
from warmwatch_monitor.views.schema.run import Run
from warmwatch_monitor.views.schema.units import Epoch, Seconds

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
    incomplete: str | None = Field(
        description="Why a run that is not listed may exist all the same, in one sentence; null "
        "where all records were read."
    )
    reached: bool | None = Field(
        default=None, description="With `wait` alone: whether that came before the timeout."
    )


class Problem(BaseModel):
    """Why there is no answer."""

    detail: str = Field(description="What is wrong and what would be right, in one sentence.")
