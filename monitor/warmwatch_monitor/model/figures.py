"""The figures of one rank in public units: its compiler, steps, warm-ups, throughput and MFU."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from math import sqrt
from operator import itemgetter
from typing import Annotated

from msgspec import Struct, field
from msgspec.structs import replace

from warmwatch.shared import record
from warmwatch_monitor.figures.compile import (
    Compile,
    CompileLimit,
    CompileTarget,
    CompileWorkers,
    CompilingWorkers,
)
from warmwatch_monitor.figures.declared import Epoch, Seconds, copied, figure
from warmwatch_monitor.figures.rank import AgentErrors, Place
from warmwatch_monitor.figures.training import (
    BATCHES,
    COUNTED,
    FORMULA,
    TORCH_MEMORY,
    AttachedAt,
    Baseline,
    CollectiveTimeout,
    DataWait,
    EagerSteps,
    LastStepAge,
    Pauses,
    PublishedSteps,
    StateSince,
    StepCount,
    WarmupSpan,
    WorldSize,
)
from warmwatch_monitor.model.journal import Compilation
from warmwatch_monitor.model.machine import peak_flops
from warmwatch_monitor.model.records import Death, Journaled, Outside

# Six in each decade from a millisecond to 1000 s, less than 1.5 apart: the buckets of the step
# histogram. A quantile from wider ones is far off: 175 ms for steps of 106 ms. They are bounds of
# the record's bins.
_OF_A_DECADE = (100, 147, 215, 316, 464, 681)
HALF_A_BIN = record.HALF_A_BIN  # of the histogram of step lengths: no median is more precise
BUCKET_SECONDS = (*(m * 10**d / 1e9 for d in range(4, 10) for m in _OF_A_DECADE), 1000.0)
# the fine bin that ends where each bucket does
_LAST_BINS = tuple(bisect_left(record.BOUNDS_NS, round(end * 1e9)) for end in BUCKET_SECONDS)
_FEWEST = 6  # steps; fewer do not span a 95 % interval
_HALF_OF_95 = 0.98  # 1.96 standard deviations of a share of one half


class Lengths(Struct, frozen=True, kw_only=True):
    """How long the steps of one kind took.

    Attributes:
        count, sum_seconds: how many, and together.
        median, longest: seconds, to the accuracy of a bin; ``None`` where no step is known.
        bins: their histogram, for the properties, which few polls need; ``None`` if not known.
        reported: ``typical``, from a source that has no median.
    """

    count: int | None = None
    sum_seconds: float | None = None
    median: float | None = None
    longest: float | None = None
    bins: Sequence[int] | None = None
    reported: float | None = None

    @property
    def upto(self) -> tuple[int, ...] | None:
        """How many took at most each of BUCKET_SECONDS."""
        upto = None if self.bins is None else tuple(accumulate(self.bins))
        return None if upto is None else tuple(upto[last] for last in _LAST_BINS)

    @property
    def p99(self) -> float | None:
        return self._quantile(0.99)

    @property
    def median_low(self) -> float | None:
        """The median is between this and ``median_high`` with 95 % certainty.

        From order statistics, so it is valid for any distribution, if the lengths are even within
        a bin, which is 5 % wide.
        """
        return self._quantile(0.5, -1)

    @property
    def median_high(self) -> float | None:
        return self._quantile(0.5, 1)

    def _quantile(self, q: float, way: int = 0) -> float | None:
        """In seconds; with ``way``, the lower or upper end of its 95 % interval."""
        if not self.count or self.bins is None or (way and self.count < _FEWEST):
            return None
        ns = record.quantile_ns(self.bins, q + way * _HALF_OF_95 / sqrt(self.count))
        return ns / 1e9 if ns else None

    @property
    def typical(self) -> float | None:
        """Typical length of one of them (see ``record.typical``); exact if all have one length."""
        if self.reported is not None:
            return self.reported
        bins = self.bins or ()
        return record.typical(self.count, self.sum_seconds, self.median, bins, unit_ns=10**9)


class Steps(PublishedSteps, frozen=True, kw_only=True):
    """The rank's steps."""

    count: StepCount = 0
    before_first_compile_seconds: float | None = None
    """Compile time before step 1, as in an evaluation; ``None`` if not known."""
    averaged: bool = False
    """Whether ``recent`` is a mean of several lengths."""
    clean: Lengths = Lengths()
    """Those without compile activity, of the whole run."""
    touched: Lengths = Lengths()
    """Those with it."""
    touched_lately: int | None = None
    """How many of the last 10 were touched."""
    repeated: int = 0
    """For how many steps in a row one function has compiled again, while it goes on."""
    tokens: Annotated[int | None, figure("tokens_total")] = None
    """Tokens trained on: steps times the tokens of a step that the user sets."""
    samples: Annotated[int | None, figure("samples_total")] = None
    """Samples trained on: steps times the samples of a step that the user sets."""
    batches: Annotated[int | None, BATCHES] = None
    batch_wait_seconds: DataWait = None
    last_batch_at: Annotated[Epoch | None, figure("last_batch_timestamp_seconds")] = None
    """When a DataLoader last returned a batch."""
    optimizer: bool | None = None
    """Whether the process made an optimizer of ``torch.optim``, so that steps are expected;
    ``None`` where that is not known."""

    @property
    def length(self) -> float | None:
        """How long a step takes now: what views mean by "a step"."""
        return self.recent or self.clean.typical


DTYPE = "bfloat16"  # the MFU refers to its peak, unless the user sets another type
_FLOPS_PER_PARAMETER = 6  # for each token: 2 in the forward, 4 in the backward

EAGER_CODE = "eager code"  # excluded: what runs outside of the compiled graphs


class Worth(Struct, frozen=True, kw_only=True):
    """Work per step of a rank; ``None`` if not reported.

    Attributes:
        tokens, samples: per step. flops: per step, as the user reported. counted: per step, as
        counted in its compiled graphs; excluded: names of operations that are not counted.
        parameters: of the model; estimated: they are those that its optimizers hold.
        dtype: in which it computes, as the user reported. dtypes: how many of the counted
        operations compute in each type; empty if unknown.
    """

    tokens: int | None = None
    samples: int | None = None
    flops: float | None = None
    counted: float | None = None
    excluded: tuple[str, ...] = ()
    parameters: int | None = None
    estimated: bool = False
    dtype: str | None = None
    dtypes: Mapping[str, float] = field(default_factory=dict)

    @property
    def shares(self) -> Mapping[str, float]:
        """The share of its operations in each type: as the user reported, else as counted.

        Without either, all of them count as bfloat16.
        """
        total = sum(self.dtypes.values())
        if self.dtype is not None or not total:
            return {self.dtype or DTYPE: 1.0}
        ordered = sorted(self.dtypes.items(), key=itemgetter(1), reverse=True)
        return {name: count / total for name, count in ordered}

    @property
    def operations(self) -> float | None:
        """Floating-point operations of a step, from the best origin that is known."""
        if self.origin == FORMULA:
            return float(_FLOPS_PER_PARAMETER * (self.parameters or 0) * (self.tokens or 0))
        return self.counted if self.origin == COUNTED else self.flops

    @property
    def origin(self) -> str | None:
        """Where ``operations`` come from; ``None`` if the user set them, or nothing is known.

        A formula with the user's parameters precedes the count, which misses what runs eagerly. The
        count precedes a formula with an estimated number of parameters.
        """
        formula = self.parameters is not None and self.tokens is not None
        if self.flops is not None or not (formula or self.counted is not None):
            return None
        return FORMULA if formula and not (self.estimated and self.counted) else COUNTED


class Utilization(Struct, frozen=True, kw_only=True):
    """Model FLOPs utilization of clean steps.

    Attributes:
        ratio: of the peak. peak_flops: dense operations a second of the rank's GPUs together, for
        its mixture of types.
        shares: of its operations by type, the largest first. estimated: the parameters are, see
        ``Worth``.
    """

    ratio: float
    peak_flops: float
    shares: Mapping[str, float]
    estimated: bool


def utilization(
    worth: Worth, step_seconds: float | None, gpus: Iterable[str | None]
) -> Utilization | None:
    """Of a rank that has the GPUs of these names; ``None`` where anything of it is not known."""
    operations, shares = worth.operations, worth.shares
    peaks = [_mixed_peak(name, shares) if name else None for name in gpus]
    values = [peak for peak in peaks if peak is not None]
    if operations is None or not step_seconds or not values or len(values) != len(peaks):
        return None
    return Utilization(
        ratio=operations / step_seconds / sum(values),
        peak_flops=sum(values),
        shares=shares,
        estimated=worth.estimated and worth.origin == FORMULA,
    )


_NEGLIGIBLE = 0.01  # of the operations: in a type whose peak is not known


def _mixed_peak(gpu: str, shares: Mapping[str, float]) -> float | None:
    """Operations a second of a GPU that does each type at its peak, one after the other."""
    seconds = 0.0  # for one operation
    for dtype, share in shares.items():
        peak = peak_flops(gpu, dtype)
        if peak is not None:
            seconds += share / peak
        elif share >= _NEGLIGIBLE:
            return None
    return 1 / seconds if seconds else None


class Warmups(Struct, frozen=True, kw_only=True):
    """The rank's warm-ups.

    Attributes:
        clean_steps_needed: how many clean steps in a row make it warm.
        latest: the last one, ``None`` until it has ended and while it is open again.
        first: the first one that ended. count: how many did; ``None`` if not reported.
        warm_at_step: the step that made, or would make, the rank warm.
        quiet_limit_seconds: how long nothing may compile before the rank is warm without steps;
        ``None`` where only steps can show that.
        earlier_seconds: of the first warm-ups of comparable earlier runs, as far as they are
        in the history and requested, newest first.
    """

    clean_steps_needed: int
    latest: WarmupSpan | None = None
    first: WarmupSpan | None = None
    count: int | None = None
    warm_at_step: int | None = None
    quiet_limit_seconds: float | None = None
    earlier_seconds: tuple[float, ...] = ()


def median(values: Iterable[float]) -> float:
    """The median of at least one value."""
    import statistics  # loads five other modules, and few runs need it

    return statistics.median(values)


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
        labels: what cluster software calls it, by label (``warmwatch.shared.run_name``).
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
    def gain(self) -> Baseline | None:
        """The eager baseline, with the gain of a rank that was warm after compiling, if known."""
        if self.baseline is None:
            return None
        made, steady = copied(self.baseline, Baseline), self.steps.clean.typical
        if not made.seconds or not steady or not self.warmups.count:
            return made
        made = replace(made, speed_up=made.seconds / steady)
        saved, cost = (made.seconds or 0.0) - steady, beyond_steady_seconds(self.steps)
        if saved <= 0 or cost is None:
            return made
        needed = math.ceil(max(0.0, cost) / saved)
        return replace(made, break_even_steps=needed, paid_back_at_step=made.steps + needed)


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
