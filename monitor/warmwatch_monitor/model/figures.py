"""The figures of one rank in public units, and what compiling gained over the eager baseline."""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import Struct

from warmwatch.shared.record.stack_file import Frame
from warmwatch_monitor.model.compile import Compile, Log
from warmwatch_monitor.model.steps import Pauses, Steps, Warmups
from warmwatch_monitor.model.throughput import Worth


class Baseline(Struct, frozen=True, kw_only=True):
    """The first ``steps`` of a rank, run eagerly on purpose.

    ``seconds``: their median, once known.
    """

    steps: int
    seconds: float | None = None


class Gain(Struct, frozen=True, kw_only=True):
    """What compiling gained over the eager baseline.

    Attributes:
        speed_up: how many times as fast as eager its clean steps are.
        break_even_steps: how many steps after the baseline recover the compile cost so far;
        ``None`` where they are no faster. paid_back_at: the step by which they have.
    """

    speed_up: float
    break_even_steps: int | None = None
    paid_back_at: int | None = None


def beyond_steady_seconds(steps: Steps) -> float | None:
    """Cost of the compiler: how much longer the affected steps took than clean steps."""
    steady, touched = steps.clean.median, steps.touched
    if steady is None or not touched.count or touched.sum_seconds is None:
        return None
    return touched.sum_seconds - touched.count * steady


def gain(figures: Figures) -> Gain | None:
    """Gain of a rank that was warm after compiling; ``None`` if any input is not known."""
    baseline, steady = figures.baseline, figures.steps.clean.typical
    if baseline is None or not baseline.seconds or not steady or not figures.warmups.count:
        return None
    saved, cost = baseline.seconds - steady, beyond_steady_seconds(figures.steps)
    speed_up = baseline.seconds / steady
    if saved <= 0 or cost is None:
        return Gain(speed_up=speed_up)
    needed = math.ceil(max(0.0, cost) / saved)
    return Gain(speed_up=speed_up, break_even_steps=needed, paid_back_at=baseline.steps + needed)


# of a process group; any other one is "other"
BACKENDS = ("nccl", "gloo", "mpi", "ucc", "xccl", "hccl", "other")


class Who(Struct, frozen=True, kw_only=True):
    """Identity of the rank that the figures describe.

    Attributes:
        run, rank: its names. name: the run's as its user gave it, without the owner that ``run``
        may append. owner, owner_uid: the user who owns it.
        world_size: ranks of the whole run, as its launcher reports.
        launch: a short name of this start of the run, unique among its starts.
        expected_ranks: how many of them have the agent; ``None`` if the user did not set it.
        attached_at: when the agent attached. attempt: restarts by the launcher, from 0.
        host, launcher, python, torch: as the agent found them.
        gpus: uuids of its devices as CUDA spells them; empty until CUDA is up.
        collective_timeout_seconds: after which its collectives give up, the shortest of its process
        groups; collective_backend: of that one, such as ``nccl``.
    """

    run: str
    rank: int
    name: str | None = None
    owner: str | None = None
    owner_uid: int | None = None
    world_size: int | None = None
    launch: str | None = None
    expected_ranks: int | None = None
    attached_at: float | None = None
    attempt: int | None = None
    host: str | None = None
    launcher: str | None = None
    python: str | None = None
    torch: str | None = None
    gpus: tuple[str, ...] = ()
    collective_timeout_seconds: float | None = None
    collective_backend: str | None = None


class Progress(Struct, frozen=True, kw_only=True):
    """Progress of the rank.

    Attributes:
        state_since: when its state began. quiet_seconds: since the last sign of progress: a step,
        the end of an activity, or attaching. compiler_quiet_seconds: since the last activity
        ended; ``None`` where none has. stall_limit_seconds: how long it may stay quiet before it
        counts as stalled. batch_quiet_seconds: since the last batch was handed out.
        open_seconds: of a rank that compiles, since its warm-up began, or since the last step
        where that is later: one first step is one story, however many graphs it takes.
        last_step_age_seconds: of a living rank, since its last step. gap_seconds: since the last
        step that came far later than usual, 0 if the next one does so now; ``None`` if that is long
        ago or not known.
        compile_limit_seconds: how long an activity may take before it counts as long;
        compile_precedent_seconds: the earlier activity that sets this limit, ``None`` if none does.
    """

    quiet_seconds: float
    state_since: float | None = None
    compiler_quiet_seconds: float | None = None
    stall_limit_seconds: float | None = None
    batch_quiet_seconds: float | None = None
    open_seconds: float | None = None
    compile_limit_seconds: float | None = None
    compile_precedent_seconds: float | None = None
    last_step_age_seconds: float | None = None
    gap_seconds: float | None = None


class Life(Struct, frozen=True, kw_only=True):
    """Whether its process lives, and how it ended.

    Attributes:
        alive: it holds the lock of its record, even if it has recorded its end.
        pid: as this monitor's pid namespace has it; ``None`` where it is gone or cannot be seen.
        end: ``finished``, ``failed``, ``interrupted`` or ``detached``; ``None`` if it recorded
        none. exit_code: 0 to 255. exception: type name of the exception that ended it.
        raised: the user's frame nearest to the place that raised it.
        signal: the name of the signal that killed it; ``None`` if none did or it is not known.
        killed_at_end: its program had completed, and it was killed before it could exit.
    """

    alive: bool
    pid: int | None = None
    end: str | None = None
    exit_code: int | None = None
    exception: str | None = None
    raised: Frame | None = None
    killed_at_end: bool = False
    signal: str | None = None


class Workers(Struct, frozen=True, kw_only=True):
    """The rank's compile workers: busy where their CPU time grows, else idle."""

    busy: int
    idle: int

    @property
    def count(self) -> int:
        return self.busy + self.idle


class Memory(Struct, frozen=True, kw_only=True):
    """What CUDA's caching allocator held over the process's devices at the last poll.

    Attributes:
        at: when. bytes: by MEMORY; peaks are those since the program's own last reset.
    """

    bytes: Mapping[str, int]
    at: float | None = None


class Agent(Struct, frozen=True, kw_only=True):
    """Health of the agent in the training: how complete its figures are.

    Attributes:
        version: of Warmwatch. missing: hook points that this torch does not have.
        errors: its own, which it caught. lines_dropped: journal lines that it could not
        write. lines_broken: journal lines that this monitor could not parse. unread_bytes: of the
        journal, not read yet. skipped_bytes: never read, because the journal is too long.
    """

    version: str | None = None
    missing: tuple[str, ...] = ()
    errors: int | None = None
    lines_dropped: int | None = None
    lines_broken: int | None = None
    unread_bytes: int | None = None
    skipped_bytes: int | None = None

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
    workers: Workers | None = None
    memory: Memory | None = None
    worth: Worth = Worth()
    baseline: Baseline | None = None
