"""The figures of one rank and its compiler in public units, and the gain over the eager baseline.

Those of steps, warm-ups, pauses and throughput are in ``steps.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated

from msgspec import Struct, field

from warmwatch_monitor.figures.compile import (
    Compile,
    CompileLimit,
    CompileTarget,
    CompileWorkers,
    CompilingWorkers,
)
from warmwatch_monitor.figures.declared import figure
from warmwatch_monitor.figures.rank import AgentErrors, Place
from warmwatch_monitor.figures.training import (
    TORCH_MEMORY,
    AttachedAt,
    CollectiveTimeout,
    EagerSteps,
    LastStepAge,
    Pauses,
    StateSince,
    WorldSize,
)
from warmwatch_monitor.figures.units import Epoch, Seconds
from warmwatch_monitor.model.journal import Compilation
from warmwatch_monitor.model.records import Death, Journaled, Outside
from warmwatch_monitor.model.steps import Steps, Warmups, Worth


class Underway(CompileTarget, frozen=True, kw_only=True):
    """A compilation in progress, or the one that reopened a warm-up.

    ``backward``: it is the function's backward; reason and category are those of its forward.
    """

    backward: bool = False


class Log(Journaled, frozen=True, kw_only=True):
    """Single compiler events from the journal; empty if no journal was read.

    Attributes:
        underway: what the activity in progress compiles; ``None`` if there is none or nothing
        of it is known yet.
        reopened_by: the last compilation of the open warm-up that has a reason.
    """

    underway: Underway | None = None
    reopened_by: Compilation | None = None


class Gain(Struct, frozen=True, kw_only=True):
    """What compiling gained over the eager baseline.

    Attributes:
        speed_up: how many times as fast as eager its clean steps are.
        break_even_steps: how many steps after the baseline recover the compile cost so far;
        ``None`` where they are no faster. paid_back_at_step: the step by which they have.
    """

    speed_up: float
    break_even_steps: int | None = None
    paid_back_at_step: int | None = None


def beyond_steady_seconds(steps: Steps) -> float | None:
    """Cost of the compiler: how much longer the affected steps took than clean steps."""
    steady, touched = steps.clean.typical, steps.touched
    if steady is None or not touched.count or touched.sum_seconds is None:
        return None
    return touched.sum_seconds - touched.count * steady


class Who(Struct, frozen=True, kw_only=True):
    """Identity of the rank that the figures describe.

    Attributes:
        run, rank: its names. name: the run's as its user gave it, without the owner that ``run``
        may append. owner, owner_uid: the user who owns it.
        launch: a short name of this start of the run, unique among its starts.
        attempt: restarts by the launcher, from 0.
        host, launcher, python, torch: as the agent found them.
        reported_gpus: uuids of its devices as CUDA spells them; empty until CUDA is up.
        collective_backend: of ``collective_timeout_seconds``, such as ``nccl``.
        labels: what cluster software calls it, by label (``warmwatch.shared.deployment``).
    """

    run: str
    rank: int
    name: str | None = None
    owner: str | None = None
    owner_uid: int | None = None
    world_size: WorldSize = None
    launch: str | None = None
    expected_ranks: Annotated[int | None, figure("expected_ranks")] = None
    """How many ranks of the run have the agent; absent unless the user sets it."""
    attached_at: AttachedAt = None
    attempt: int | None = None
    host: str | None = None
    launcher: str | None = None
    python: str | None = None
    torch: str | None = None
    reported_gpus: tuple[str, ...] = ()
    collective_timeout_seconds: CollectiveTimeout = None
    collective_backend: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


class Stretch(Struct, frozen=True, kw_only=True):
    """The compile activities of a rank since its last step, with the pauses between."""

    began_at: Annotated[Epoch, figure("compiling_start_timestamp_seconds")]
    """When the first compile activity since the last step of the rank began; absent where none has.
    """
    seconds: float
    """Since then."""
    compiler_seconds: float | None = None
    """Without the pauses; ``None`` if not known."""


class Progress(Struct, frozen=True, kw_only=True):
    """Progress of the rank."""

    quiet_seconds: float
    """Since the last sign of progress: a step, the end of an activity, or attaching."""
    state_since: StateSince = None
    compiler_quiet_seconds: float | None = None
    """Since the last activity ended; ``None`` where none has."""
    stall_limit_seconds: Annotated[Seconds | None, figure("stall_limit_seconds")] = None
    """How long the rank may go without a step before it counts as stalled."""
    batch_quiet_seconds: float | None = None
    """Since the last batch was handed out."""
    open_seconds: float | None = None
    """Of a rank that compiles, since its warm-up began, or since the last step where that is later:
    another rank may have waited so long for it."""
    stretch: Stretch | None = None
    """What it compiled since its last step; ``None`` if nothing, or if that is not known."""
    compile_limit_seconds: CompileLimit = None
    compile_precedent_seconds: float | None = None
    """The earlier activity that sets this limit; ``None`` if none does."""
    last_step_age_seconds: LastStepAge = None
    gap_seconds: float | None = None
    """Since the last step that came far later than usual, 0 if the next one does so now; ``None``
    if that is long ago or not known."""


class Life(Struct, frozen=True, kw_only=True):
    """Whether its process lives, and how it ended.

    Attributes:
        alive: it holds the lock of its record, even if it has recorded its end.
        pid: as this monitor's pid namespace has it; ``None`` where it is gone or cannot be seen.
        end: ``finished``, ``failed``, ``interrupted`` or ``detached``; ``None`` if it recorded
        none. exit_code: 0 to 255. exception: type name of the exception that ended it.
        raised: the user's frame nearest to the place that raised it. refusal: what compiled code
        refused, a key of ``REFUSALS``.
        signal: the name of the signal that killed it; ``None`` if none did or it is not known.
        killed_at_end: its program had completed, and it was killed before it could exit.
    """

    alive: bool
    pid: int | None = None
    end: str | None = None
    exit_code: int | None = None
    exception: str | None = None
    raised: Place | None = None
    refusal: str | None = None
    killed_at_end: bool = False
    signal: str | None = None


class Memory(Struct, frozen=True, kw_only=True):
    """What CUDA's caching allocator held over the process's devices at the last poll."""

    bytes: Annotated[Mapping[str, int], TORCH_MEMORY]
    at: float | None = None
    """When it was read."""


class Agent(Struct, frozen=True, kw_only=True):
    """Health of the agent in the training: how complete its figures are."""

    version: str | None = None
    """Of Warmwatch."""
    missing: tuple[str, ...] = ()
    """Hook points that this torch does not have."""
    errors: AgentErrors = None
    lines_dropped: Annotated[int | None, figure("journal_dropped_lines_total")] = None
    """Journal lines that the agent could not write."""
    lines_broken: Annotated[int | None, figure("journal_lines_refused")] = None
    """Lines of the rank's journal that cannot be read."""
    unread_bytes: int | None = None
    """Of the journal, not read yet."""
    skipped_bytes: int | None = None
    """Of the journal, never read, because it is too long."""

    @property
    def incomplete_bytes(self) -> int | None:
        """By how much of the journal all that is read of its lines is incomplete now."""
        if self.unread_bytes is None or self.skipped_bytes is None:
            return None
        return self.unread_bytes + self.skipped_bytes


class Figures(Struct, frozen=True, kw_only=True):
    """All figures of one rank.

    ``workers`` is ``None`` before their second poll, ``memory`` until CUDA is initialized,
    ``baseline`` if no steps were to run eagerly on purpose.
    """

    who: Who
    steps: Steps
    compile: Compile
    warmups: Warmups
    progress: Progress
    life: Life
    agent: Agent
    log: Log = Log()
    pauses: Pauses = Pauses()
    workers: CompileWorkers = None
    memory: Memory | None = None
    worth: Worth = Worth()
    baseline: EagerSteps | None = None
    loader_workers: CompilingWorkers | None = None

    @property
    def gain(self) -> Gain | None:
        """Gain of a rank that was warm after compiling; ``None`` if any input is not known."""
        baseline, steady = self.baseline, self.steps.clean.typical
        if baseline is None or not baseline.seconds or not steady or not self.warmups.count:
            return None
        saved, cost = baseline.seconds - steady, beyond_steady_seconds(self.steps)
        speed_up = baseline.seconds / steady
        if saved <= 0 or cost is None:
            return Gain(speed_up=speed_up)
        needed = math.ceil(max(0.0, cost) / saved)
        return Gain(
            speed_up=speed_up, break_even_steps=needed, paid_back_at_step=baseline.steps + needed
        )


# What an estimate of the time left is based on.


class Done(Struct, frozen=True, kw_only=True):
    """A compilation that has ended, of any run; its fields are those of ``Compilation``."""

    kind: str | None = None
    name: str | None = None
    code: str | None = None
    cache: str | None = None
    seconds: float | None = None


class EarlierWarmup(Struct, frozen=True, kw_only=True):
    """A first warm-up of an earlier run, or of another rank, to compare with one in progress.

    Attributes:
        seconds: wall time, from its first compile activity to the end of its last.
        phase_seconds: of that, exclusive. compiled: in order; ``None`` if not all are known.
        of_rank: it is from another rank of the same run.
    """

    seconds: float
    phase_seconds: Mapping[str, float] = field(default_factory=dict)
    compiled: tuple[Done, ...] | None = None
    of_rank: bool = False


class RankHistory(Struct, frozen=True, kw_only=True):
    """What the history has for a rank: earlier starts of its run, newest first, and its end.

    Attributes:
        same: the first warm-ups of those that compiled the same under the same conditions.
        warmup_seconds: of the first warm-ups of all comparable ones.
        death, outside: of its process, as an earlier daemon saw them.
    """

    same: tuple[EarlierWarmup, ...] = ()
    warmup_seconds: tuple[float, ...] = ()
    death: Death | None = None
    outside: Outside | None = None
