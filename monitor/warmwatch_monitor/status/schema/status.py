"""Schema of the ``/status`` document: status, runs and GPUs. The descriptions appear in
``/docs``.
"""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from warmwatch.shared.states import State
from warmwatch_monitor.figures.compile import Workers
from warmwatch_monitor.figures.declared import AnswerClause, Epoch, Joules, Number, Seconds
from warmwatch_monitor.figures.machine import (
    CLOCKS,
    ECC_ERRORS,
    ExportHealth,
    GpuValues,
    Host,
    Refusal,
    SourceHealth,
)
from warmwatch_monitor.figures.rank import LimitedBy, Spread
from warmwatch_monitor.figures.training import WorldSize
from warmwatch_monitor.status.schema.rank import Rank


class Gpu(GpuValues, frozen=True, kw_only=True):
    """A GPU, or a MIG device. What it does not support is null."""

    clocks_hertz: Annotated[dict[str, Number] | None, CLOCKS] = None
    throttled: list[str] | None = None
    """Why the clocks are reduced now; empty: they are not."""
    ecc_errors: Annotated[dict[str, int] | None, ECC_ERRORS] = None
    age: Seconds
    """Time since this was read."""


class Deadline(Struct, frozen=True, kw_only=True):
    """When the collective times out in which ranks wait for one that compiles."""

    backend: str | None = None
    """Backend of the process group, such as `nccl`."""
    timeout_seconds: Seconds
    """Timeout of the rank with the least time left."""
    left_seconds: Seconds
    """Lower bound of the time left."""
    advice: str
    """How to raise the timeout."""


class Skew(Struct, frozen=True, kw_only=True):
    """How far apart the ranks of a run are. A figure is null unless two ranks have it."""

    compile_seconds: Spread | None = None
    """Compile time, in seconds."""
    compilations: Spread | None = None
    """Graphs compiled."""
    graphs: Spread | None = None
    """Graphs captured."""
    recompiles: Spread | None = None
    """Recompiles."""
    first_step_at: Spread | None = None
    """End of step 1, seconds since the epoch."""
    step_seconds: Spread | None = None
    """Recent length of a step, of living ranks. Ranks that wait for each other have one length."""
    differences: list[str]
    """Differences between the ranks, once all are warm."""


class RunAnswer(Struct, frozen=True, kw_only=True):
    """The answer for a run, in words."""

    run: str
    """Its name here. A run of another user than the monitor's ends with its owner: `gpt2@alice`."""
    state: State
    """State of its least advanced living rank."""
    state_words: str
    """The state with the condition that qualifies it, as in `warm but slower`; `interrupted` or
    `detached` if it finished so.
    """
    qualified_by: str | None = None
    """The condition that qualifies a warm or eager state, as in `warm but slower`; null if none."""
    summary: str
    """The answer for this run, in one sentence of at most 120 characters. A long name is shortened.
    """
    title: str
    """State and most important figure: `warm, 36 ms a step`."""
    subtitle: str
    """`summary` without the name and without what `title` has."""
    clauses: list[AnswerClause]
    """The answer for this run, by kind, the most important first."""


class Run(RunAnswer, frozen=True, kw_only=True):
    """A training job, with those of its ranks that are seen here."""

    name: str | None = None
    """Its name, as set by its user."""
    owner: str | None = None
    """The user who owns it, by name if there is one; null if it is unknown."""
    owner_uid: int | None = None
    """The owner's uid in the monitor's user namespace."""
    decisive_rank: int
    """The rank that decides the state, which `summary` describes."""
    compiling: bool | None = None
    """Whether any living rank compiles; null if none lives."""
    compiling_since: Epoch | None = None
    """Since when it compiles: the first compile activity of any rank, without a step of the run
    since. Ranks may compile in turns, with pauses and evaluations. Null if no rank compiles.
    """
    compiling_seconds: Seconds | None = None
    """The time since `compiling_since`, as in `summary`."""
    compiler_seconds: Seconds | None = None
    """How much of `compiling_seconds` the compiler of one rank worked, the most of all ranks."""
    warm: bool | None = None
    """Whether all living ranks are warm; null if none lives."""
    limited_by: LimitedBy | None = None
    """What limits its speed while it is warm or eager: of the rank that the others wait for, else
    of most ranks. The last evidence has which rank or how many it is, if not all. Null if that is
    unknown.
    """
    compile_gpu_seconds: Seconds | None = None
    """Compile time multiplied by GPUs, of all ranks; null if no rank reports a GPU."""
    compile_joules: Joules | None = None
    """Energy of the ranks' GPUs while they compiled; null if none was measured."""
    world_size: WorldSize = None
    missing_ranks: list[int]
    """Ranks that are not seen here, the first 100."""
    missing_ranges: list[tuple[int, int]]
    """Ranks that are not seen here as ranges `[first, last]`, the first 100 ranges."""
    missing_count: int
    """Number of ranks that are not seen here."""
    skew: Skew | None = None
    """How far apart the ranks are; null with one rank."""
    deadline: Deadline | None = None
    """When the collective times out in which ranks wait for one that compiles; null if none waits,
    or if no timeout is known.
    """
    ranks: Annotated[list[Rank], Meta(min_length=1)]
    """Its ranks, in order."""


SCHEMA_VERSION = 1  # within it, no key changes its meaning
STATUS_DESCRIPTION = (
    "Whether torch.compile is still compiling, with the evidence. `compiling` and `warm` are null "
    "if no run lives. What is not known is null. Times are seconds since the epoch, durations are "
    "seconds. The answer has everything that was recorded before `at`. Keys may be added; within "
    "one `schema_version` none changes its meaning."
)


class Observed(Struct, frozen=True, kw_only=True):
    """A process without the agent that looks like a training."""

    pid: int
    """Its pid on this host."""
    command: str
    """Its command, without arguments."""
    gpus: list[str]
    """UUIDs of the GPUs on which NVML lists it."""
    workers: Workers | None = None
    """Its compile workers; null before the second poll."""
    cpu_ratio: Number | None = None
    """Its share of one core in the last poll, from 0."""
    likely_compiling: bool | None = None
    """Whether it probably compiles; null if that is unknown."""
    evidence: list[str]
    """What was observed, one clause each."""


class LeftOut(Struct, frozen=True, kw_only=True):
    """How much is left out, because it exceeds the budget of a user or of all users."""

    records: int
    """Records that were not read, because their users have newer ones."""
    ranks: int
    """Ranks that were read and are left out."""
    gpus: int
    """GPUs that ranks report and NVML does not: they have no series."""


class Status(Struct, frozen=True, kw_only=True):
    """The whole document."""

    schema_version: int
    """1. Within a version, no key changes its meaning."""
    at: Epoch | None = None
    """When the poll of the records for this answer began; null without one."""
    compiling: bool | None = None
    """Whether any living rank has compile activity now; null if no rank lives."""
    warm: bool | None = None
    """Whether every living rank is warm or eager; null if no rank lives."""
    awaited: bool = False
    """Whether the daemon waits for the first record of the command that started it."""
    summary: str
    """The answer in one sentence of at most 120 characters, about living runs if there are any."""
    details: list[str] = []
    """Other facts, one clause each, the most important first: details of the only living run, or
    summaries of the living runs; then runs that ended.
    """
    runs: list[Run]
    """The runs, by name."""
    observed: list[Observed] = []
    """Trainings without the agent."""
    gpus: list[Gpu]
    """The GPUs of this host."""
    host: Host | None = None
    """The machine; null if it could not be read."""
    sources: list[SourceHealth]
    """Health of the monitor's data sources."""
    exports: list[ExportHealth] = []
    """Health of the monitor's exports."""
    directories: list[str] = []
    """The record directories that it watches."""
    refusals: list[Refusal]
    """Records in these directories that cannot be read."""
    more_refusals: int
    """Number of refusals that are not listed."""
    unread_records: int
    """Number of records that have not been read yet."""
    left_out: LeftOut
    """What this answer leaves out, because it exceeds a budget."""
    left_out_uids: list[int] = []
    """Uids of users whose records are left out, 100 at most. Only their runs may exist without
    being listed, unless `incomplete` gives another reason.
    """
    incomplete: str | None = None
    """Why a run may exist that is not listed, in one sentence; null if all records were read that
    their users' limits allow.
    """
    reached: bool | UnsetType = UNSET
    """Only with `wait`: whether the state was reached before the timeout."""


class Problem(Struct, frozen=True, kw_only=True):
    """Why there is no document."""

    detail: str
    """What is wrong and what to do, in one sentence."""
