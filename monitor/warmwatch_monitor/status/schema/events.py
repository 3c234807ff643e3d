"""Schema of ``/events``: the data of each event."""

from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from warmwatch.shared.states import State
from warmwatch_monitor.figures.compile import Counted
from warmwatch_monitor.figures.declared import Epoch, Number, Seconds
from warmwatch_monitor.figures.rank import CleanSteps, RankState
from warmwatch_monitor.figures.training import AttachedAt, LastStepAge, StateSince, StepCount
from warmwatch_monitor.status.schema.rank import End, PastCompilation, Underway
from warmwatch_monitor.status.schema.status import RunAnswer

_Phase = Annotated[
    str | None, Meta(description="Phase of the compile activity; null if PyTorch reports none.")
]
_Underway = Annotated[
    Underway | None, Meta(description="What is compiled; null as long as that is not known.")
]


class Event(Struct, frozen=True, kw_only=True):
    """What every event has."""

    kind: ClassVar[str]
    at: Epoch
    """When the monitor saw it."""


class _OfRun(Event, frozen=True, kw_only=True):
    run: str
    """The run, as `/status` names it."""
    summary: str
    """The run's `summary` at that moment."""


class RankEvent(_OfRun, frozen=True, kw_only=True):
    """An event of a rank."""

    rank: int
    """The rank, from 0."""


class AttachedEvent(RankEvent, frozen=True, kw_only=True):
    """A rank has attached, or another process has taken its place."""

    kind = "attached"
    attached_at: AttachedAt = None
    attempt: int | None = None
    """Restarts of the run by its launcher, from 0."""


class StateEvent(RankEvent, frozen=True, kw_only=True):
    """A rank is in another state."""

    kind = "state"
    state: State
    """The state that it is in now."""
    before: State | None = None
    """Its state before; null in its first event."""
    since: StateSince = None


class ConditionEvent(RankEvent, frozen=True, kw_only=True):
    """Other conditions of a rank hold."""

    kind = "condition"
    conditions: list[str]
    """Names of those that hold now."""
    before: list[str]
    """Names of those that held before."""


class CompileBeginEvent(RankEvent, frozen=True, kw_only=True):
    """Compile activity has begun."""

    kind = "compile_begin"
    began_at: Epoch | None = None
    """When it began; null if it is over already."""
    phase: _Phase = None
    underway: _Underway = None


class PhaseEvent(RankEvent, frozen=True, kw_only=True):
    """The compile activity in progress is in another phase, or compiles something else."""

    kind = "phase"
    phase: _Phase = None
    underway: _Underway = None


class CompilationEvent(RankEvent, frozen=True, kw_only=True):
    """A compilation has ended."""

    kind = "compilation"
    compilation: PastCompilation
    """As in `compile.last` of `/status`, without its total."""


class CompileEndEvent(RankEvent, frozen=True, kw_only=True):
    """Compile activity has ended."""

    kind = "compile_end"
    compile_seconds: Seconds
    """The rank's compile time so far."""


class ReopenedEvent(RankEvent, frozen=True, kw_only=True):
    """A rank that was warm compiles again."""

    kind = "reopened"
    by: PastCompilation | None = None
    """The compilation that has the reason; null as long as none has."""


class WarmEvent(RankEvent, frozen=True, kw_only=True):
    """A rank is warm, or eager."""

    kind = "warm"
    ended_at: Epoch | None = None
    """When its warm-up ended."""
    seconds: Seconds | None = None
    """How long its warm-up took."""
    steps: int | None = None
    """Steps within its warm-up."""


class EndedEvent(RankEvent, frozen=True, kw_only=True):
    """A rank has ended."""

    kind = "ended"
    end: End | None = None
    """How it ended, as in `/status`."""


class RunEvent(_OfRun, frozen=True, kw_only=True):
    """A run is in another state."""

    kind = "run"
    state: State
    """The state that it is in now."""
    before: State | None = None
    """Its state before; null in its first event."""
    compiling: bool | None = None
    """As in `/status`."""
    warm: bool | None = None
    """As in `/status`."""


class GoneEvent(Event, frozen=True, kw_only=True):
    """A run is no longer shown: it ended long ago, or its records were removed."""

    kind = "gone"
    run: str
    """The run, as `/status` names it."""


class SourceEvent(Event, frozen=True, kw_only=True):
    """A data source has failed, or works again."""

    kind = "source"
    source: str
    """Its name, as in `/status`."""
    up: bool
    """Whether the last read succeeded."""
    error: str | None = None
    """What is wrong; null if nothing is."""


class ResetEvent(Struct, frozen=True, kw_only=True):
    """All of `/status`, because the client missed events."""

    why: str
    """`too_old`: the daemon no longer has the events after the last id. `another_daemon`: the id is
    of another start of the daemon.
    """


class SampledRank(Struct, frozen=True, kw_only=True):
    """A rank's figures at a moment."""

    run: str
    """The run, as `/status` names it."""
    rank: int
    """The rank, from 0."""
    state: RankState
    phase: str | None = None
    """Phase of the activity in progress; null if there is none."""
    pause: str | None = None
    """`saving` or `evaluation`; null if it does neither."""
    steps: StepCount
    clean_steps: CleanSteps
    evidence: list[str] = []
    """As in `/status`."""
    step_seconds: Seconds | None = None
    """As `last_second` of `step_seconds` in `/status`."""
    a_step_seconds: Seconds | None = None
    """A step, as the sentence has it; null: not known."""
    last_step_age_seconds: LastStepAge = None
    compile_seconds: Seconds
    """Compile time so far."""
    progress: Counted | None = None
    """How far the activity is, as in `/status`."""


class SampledGpu(Struct, frozen=True, kw_only=True):
    """A GPU's figures at a moment."""

    uuid: str
    """As in `/status`."""
    index: int
    """As in `/status`."""
    power_limit_watts: Number | None = None
    """As in `/status`."""
    utilization_ratio: Number | None = None
    """As in `/status`."""
    power_watts: Number | None = None
    """As in `/status`."""
    memory_used_bytes: Number | None = None
    """As in `/status`."""


class SampleEvent(Event, frozen=True, kw_only=True):
    """The figures of a moment, once a second, if requested. It has no id."""

    kind = "sample"
    late_seconds: Seconds | None = None
    """Since when nothing new was published; null if the figures are new."""
    summary: str
    """As in `/status`."""
    details: list[str] = []
    """As in `/status`."""
    compiling: bool | None = None
    """As in `/status`."""
    warm: bool | None = None
    """As in `/status`."""
    awaited: bool = False
    """As in `/status`."""
    runs: list[RunAnswer]
    """The runs, by name."""
    ranks: list[SampledRank]
    """The ranks of all runs."""
    gpus: list[SampledGpu]
    """The GPUs of this host."""


class StoppingEvent(Event, frozen=True, kw_only=True):
    """The daemon stops: the last event of a stream. It has no id."""

    kind = "stopping"


# In the order in which the events of one poll are sent.
CHANGES: tuple[type[Event], ...] = (
    AttachedEvent,
    StateEvent,
    ConditionEvent,
    CompileBeginEvent,
    PhaseEvent,
    CompilationEvent,
    CompileEndEvent,
    ReopenedEvent,
    WarmEvent,
    EndedEvent,
    RunEvent,
    GoneEvent,
    SourceEvent,
)
KINDS = tuple(item.kind for item in CHANGES)
