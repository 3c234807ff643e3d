"""Schema of ``/events``: the data of each event."""

from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from warmwatch.shared.states import State
from warmwatch_monitor.status.schema.compile import (
    Counted,
    Epoch,
    Number,
    PastCompilation,
    Seconds,
    Underway,
)
from warmwatch_monitor.status.schema.rank import End

_Phase = Annotated[
    str | None, Meta(description="Phase of the compile activity; null if PyTorch reports none.")
]
_Underway = Annotated[
    Underway | None, Meta(description="What is compiled; null as long as that is not known.")
]


class Event(Struct, frozen=True, kw_only=True):
    """What every event has."""

    kind: ClassVar[str]
    at: Annotated[Epoch, Meta(description="When the monitor saw it.")]


class _OfRun(Event, frozen=True, kw_only=True):
    run: Annotated[str, Meta(description="The run, as `/status` names it.")]
    summary: Annotated[str, Meta(description="The run's `summary` at that moment.")]


class RankEvent(_OfRun, frozen=True, kw_only=True):
    """An event of a rank."""

    rank: Annotated[int, Meta(description="The rank, from 0.")]


class AttachedEvent(RankEvent, frozen=True, kw_only=True):
    """A rank has attached, or another process has taken its place."""

    kind = "attached"
    attached_at: Annotated[Epoch | None, Meta(description="When its agent attached.")] = None
    attempt: Annotated[
        int | None, Meta(description="Restarts of the run by its launcher, from 0.")
    ] = None


class StateEvent(RankEvent, frozen=True, kw_only=True):
    """A rank is in another state."""

    kind = "state"
    state: Annotated[State, Meta(description="The state that it is in now.")]
    before: Annotated[
        State | None, Meta(description="Its state before; null in its first event.")
    ] = None
    since: Annotated[Epoch | None, Meta(description="When the state began; null: not known.")] = (
        None
    )


class ConditionEvent(RankEvent, frozen=True, kw_only=True):
    """Other conditions of a rank hold."""

    kind = "condition"
    conditions: Annotated[list[str], Meta(description="Names of those that hold now.")]
    before: Annotated[list[str], Meta(description="Names of those that held before.")]


class CompileBeginEvent(RankEvent, frozen=True, kw_only=True):
    """Compile activity has begun."""

    kind = "compile_begin"
    began_at: Annotated[
        Epoch | None, Meta(description="When it began; null if it is over already.")
    ] = None
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
    compilation: Annotated[
        PastCompilation, Meta(description="As in `compile.last` of `/status`, without its total.")
    ]


class CompileEndEvent(RankEvent, frozen=True, kw_only=True):
    """Compile activity has ended."""

    kind = "compile_end"
    compile_seconds: Annotated[Seconds, Meta(description="The rank's compile time so far.")]


class ReopenedEvent(RankEvent, frozen=True, kw_only=True):
    """A rank that was warm compiles again."""

    kind = "reopened"
    by: Annotated[
        PastCompilation | None,
        Meta(description="The compilation that has the reason; null as long as none has."),
    ] = None


class WarmEvent(RankEvent, frozen=True, kw_only=True):
    """A rank is warm, or eager."""

    kind = "warm"
    ended_at: Annotated[Epoch | None, Meta(description="When its warm-up ended.")] = None
    seconds: Annotated[Seconds | None, Meta(description="How long its warm-up took.")] = None
    steps: Annotated[int | None, Meta(description="Steps within its warm-up.")] = None


class EndedEvent(RankEvent, frozen=True, kw_only=True):
    """A rank has ended."""

    kind = "ended"
    end: Annotated[End | None, Meta(description="How it ended, as in `/status`.")] = None


class RunEvent(_OfRun, frozen=True, kw_only=True):
    """A run is in another state."""

    kind = "run"
    state: Annotated[State, Meta(description="The state that it is in now.")]
    before: Annotated[
        State | None, Meta(description="Its state before; null in its first event.")
    ] = None
    compiling: Annotated[bool | None, Meta(description="As in `/status`.")] = None
    warm: Annotated[bool | None, Meta(description="As in `/status`.")] = None


class GoneEvent(Event, frozen=True, kw_only=True):
    """A run is no longer shown: it ended long ago, or its records were removed."""

    kind = "gone"
    run: Annotated[str, Meta(description="The run, as `/status` names it.")]


class SourceEvent(Event, frozen=True, kw_only=True):
    """A data source has failed, or works again."""

    kind = "source"
    source: Annotated[str, Meta(description="Its name, as in `/status`.")]
    up: Annotated[bool, Meta(description="Whether the last read succeeded.")]
    error: Annotated[str | None, Meta(description="What is wrong; null if nothing is.")] = None


class ResetEvent(Struct, frozen=True, kw_only=True):
    """All of `/status`, because the client missed events."""

    why: Annotated[
        str,
        Meta(
            description="`too_old`: the daemon no longer has the events after the last id. "
            "`another_daemon`: the id is of another start of the daemon."
        ),
    ]


class SampledRun(Struct, frozen=True, kw_only=True):
    """A run's sentences at a moment."""

    run: Annotated[str, Meta(description="The run, as `/status` names it.")]
    state: Annotated[State, Meta(description="As in `/status`.")]
    summary: Annotated[str, Meta(description="As in `/status`.")]
    details: Annotated[list[str], Meta(description="As in `/status`.")] = []


class SampledRank(Struct, frozen=True, kw_only=True):
    """A rank's figures at a moment."""

    run: Annotated[str, Meta(description="The run, as `/status` names it.")]
    rank: Annotated[int, Meta(description="The rank, from 0.")]
    state: Annotated[State, Meta(description="As in `/status`.")]
    phase: Annotated[
        str | None, Meta(description="Phase of the activity in progress; null if there is none.")
    ] = None
    pause: Annotated[
        str | None, Meta(description="`saving` or `evaluation`; null if it does neither.")
    ] = None
    silent: Annotated[bool, Meta(description="Whether the condition `silent` holds.")]
    since: Annotated[Epoch | None, Meta(description="When its state began; null: not known.")] = (
        None
    )
    left_seconds: Annotated[
        Seconds | None,
        Meta(description="`compile.estimate.left_seconds` of `/status`; null without an estimate."),
    ] = None
    steps: Annotated[int, Meta(description="Steps so far.")]
    step_seconds: Annotated[Seconds | None, Meta(description="Length of the last step.")] = None
    a_step_seconds: Annotated[
        Seconds | None, Meta(description="A step, as the sentence has it; null: not known.")
    ] = None
    last_step_age_seconds: Annotated[
        Seconds | None, Meta(description="As in `/status`; null if the rank has ended.")
    ] = None
    compile_seconds: Annotated[Seconds, Meta(description="Compile time so far.")]
    progress: Annotated[
        Counted | None, Meta(description="How far the activity is, as in `/status`.")
    ] = None


class SampledGpu(Struct, frozen=True, kw_only=True):
    """A GPU's figures at a moment."""

    uuid: Annotated[str, Meta(description="As in `/status`.")]
    index: Annotated[int, Meta(description="As in `/status`.")]
    power_limit_watts: Annotated[Number | None, Meta(description="As in `/status`.")] = None
    utilization_ratio: Annotated[Number | None, Meta(description="As in `/status`.")] = None
    power_watts: Annotated[Number | None, Meta(description="As in `/status`.")] = None
    memory_used_bytes: Annotated[Number | None, Meta(description="As in `/status`.")] = None


class SampleEvent(Event, frozen=True, kw_only=True):
    """The figures of a moment, once a second, if requested. It has no id."""

    kind = "sample"
    late_seconds: Annotated[
        Seconds | None,
        Meta(description="Since when nothing new was published; null if the figures are new."),
    ] = None
    summary: Annotated[str, Meta(description="As in `/status`.")]
    details: Annotated[list[str], Meta(description="As in `/status`.")] = []
    compiling: Annotated[bool | None, Meta(description="As in `/status`.")] = None
    warm: Annotated[bool | None, Meta(description="As in `/status`.")] = None
    runs: Annotated[list[SampledRun], Meta(description="The runs, by name.")]
    ranks: Annotated[list[SampledRank], Meta(description="The ranks of all runs.")]
    gpus: Annotated[list[SampledGpu], Meta(description="The GPUs of this host.")]


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
KINDS = tuple(one.kind for one in CHANGES)
