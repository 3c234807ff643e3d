"""The figures of one rank and its compiler in public units, and the gain over the eager baseline.

Those of steps, warm-ups, pauses and throughput are in ``steps.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import Struct, field

from warmwatch_monitor.model.records import (
    OF_GRAPHS,
    Compilation,
    CompileTarget,
    Death,
    Journaled,
)
from warmwatch_monitor.model.steps import Pauses, Steps, Warmups, Worth
from warmwatch_monitor.published import CompilingWorkers, Counted, Place, Workers


class OpenActivity(Struct, frozen=True, kw_only=True):
    """Compile activity in progress; of a rank that has ended, the one that its end cut off.

    Attributes:
        began_at: its begin. seconds: since then. phase: one of PHASES; ``None`` if not reported.
        counted: its progress, if PyTorch counts the items of the current phase.
    """

    began_at: float
    seconds: float
    phase: str | None = None
    counted: Counted | None = None


class Compile(Struct, frozen=True, kw_only=True):
    """Activity of the rank's compiler so far. A count is ``None`` if this torch has none.

    Attributes:
        begun: whether any activity has begun, ended or not. open: the one in progress.
        last_end_at: when the last one ended.
        phase_seconds: exclusive time of each of PHASES, the activity in progress included;
        seconds: all of it.
        compilations: by kind, of KINDS those that its torch counts. recompiles: by category.
        graphs, graph_breaks, failures: as Dynamo counts them.
        recompiles_after_warm: those of a rank that had been warm.
        fallbacks: frames that hit the recompile limit; their new inputs run eagerly.
        cache_hits, cache_misses: by cache.
        graphs_before: graphs that Dynamo had captured before the agent attached.
        precompiled: ahead-of-time artifacts in use, of PRECOMPILED; ``None``: not known.
        wrappers: how many functions and modules the user passed to ``torch.compile``.
        disabled: which of DISABLED turns compilation off; ``None`` if it is on or this is not
        known. cudagraph_skips: how often CUDA graphs were requested and skipped.
        new_instances: first compilations of a module whose class was compiled for another before.
        disabled_since_step: the last step before ``disabled`` changed. eager_calls, refused_calls:
        calls of compiled functions that a stance ran eagerly or refused; ``*_since``: the step of
        the first one. uncompiled_evaluations: evaluations in which no compiled function was called.
        background_since: begin of the oldest compilation in progress on a thread that the steps do
        not wait for; ``None`` where there is none. background_seconds: time of all such
        compilations, added up over threads; background_for_seconds: since ``background_since``.
    """

    begun: bool = False
    open: OpenActivity | None = None
    last_end_at: float | None = None
    seconds: float = 0.0
    phase_seconds: Mapping[str, float] = field(default_factory=dict)
    compilations: Mapping[str, int] | None = None
    recompiles: Mapping[str, int] | None = None
    graphs: int | None = None
    graph_breaks: int | None = None
    failures: int | None = None
    recompiles_after_warm: int | None = None
    fallbacks: int | None = None
    cache_hits: Mapping[str, int] | None = None
    cache_misses: Mapping[str, int] | None = None
    graphs_before: int | None = None
    precompiled: tuple[str, ...] | None = None
    wrappers: int | None = None
    disabled: str | None = None
    cudagraph_skips: int | None = None
    new_instances: int | None = None
    disabled_since_step: int | None = None
    eager_calls: int | None = None
    eager_calls_since: int | None = None
    refused_calls: int | None = None
    refused_calls_since: int | None = None
    uncompiled_evaluations: int | None = None
    background_since: float | None = None
    background_seconds: float = 0.0
    background_for_seconds: float | None = None

    @property
    def graphs_compiled(self) -> int | None:
        """Compilations of graphs; excludes autotuning of kernels and recording of CUDA graphs."""
        counts = self.compilations
        return None if counts is None else sum(counts.get(kind, 0) for kind in OF_GRAPHS)

    @property
    def recompiles_total(self) -> int | None:
        return None if self.recompiles is None else sum(self.recompiles.values())


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
    steady, touched = steps.clean.typical, steps.touched
    if steady is None or not touched.count or touched.sum_seconds is None:
        return None
    return touched.sum_seconds - touched.count * steady


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
        reported_gpus: uuids of its devices as CUDA spells them; empty until CUDA is up.
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
    reported_gpus: tuple[str, ...] = ()
    collective_timeout_seconds: float | None = None
    collective_backend: str | None = None


class Stretch(Struct, frozen=True, kw_only=True):
    """The compile activities of a rank since its last step, with the pauses between.

    ``began_at``: the first one; ``seconds``: since then. ``compiler_seconds``: without the pauses;
    ``None`` if not known.
    """

    began_at: float
    seconds: float
    compiler_seconds: float | None = None


class Progress(Struct, frozen=True, kw_only=True):
    """Progress of the rank.

    Attributes:
        state_since: when its state began. quiet_seconds: since the last sign of progress: a step,
        the end of an activity, or attaching. compiler_quiet_seconds: since the last activity
        ended; ``None`` where none has. stall_limit_seconds: how long it may stay quiet before it
        counts as stalled. batch_quiet_seconds: since the last batch was handed out.
        open_seconds: of a rank that compiles, since its warm-up began, or since the last step
        where that is later: another rank may have waited so long for it.
        stretch: what it compiled since its last step; ``None`` if nothing, or if that
        is not known.
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
    stretch: Stretch | None = None
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
    raised: Place | None = None
    killed_at_end: bool = False
    signal: str | None = None


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
            speed_up=speed_up, break_even_steps=needed, paid_back_at=baseline.steps + needed
        )


# What an estimate of the time left is based on.


class Done(Struct, frozen=True, kw_only=True):
    """A compilation that has ended, of any run; its fields are those of ``Compilation``."""

    kind: str | None = None
    name: str | None = None
    code: str | None = None
    cache: str | None = None
    seconds: float | None = None
    evaluating: bool = False
    category: str | None = None


class EarlierWarmup(Struct, frozen=True, kw_only=True):
    """A first warm-up of an earlier run, or of another rank, to compare with one in progress.

    Attributes:
        seconds: wall time, from its first compile activity to the end of its last.
        phase_seconds: of that, exclusive. compiled: in order; ``None`` if not all are known.
        later: compilations after it. of_rank: it is from another rank of the same run.
    """

    seconds: float
    phase_seconds: Mapping[str, float] = field(default_factory=dict)
    compiled: tuple[Done, ...] | None = None
    later: tuple[Done, ...] = ()
    of_rank: bool = False


class RankHistory(Struct, frozen=True, kw_only=True):
    """What the history has for a rank: earlier starts of its run, newest first, and its end.

    Attributes:
        same: the first warm-ups of those that compiled the same under the same conditions.
        warmup_seconds: of the first warm-ups of all comparable ones.
        death: of its process, as an earlier daemon saw it.
    """

    same: tuple[EarlierWarmup, ...] = ()
    warmup_seconds: tuple[float, ...] = ()
    death: Death | None = None
