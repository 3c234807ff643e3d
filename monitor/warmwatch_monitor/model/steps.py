"""Figures of a rank's steps, warm-ups and pauses; work per step, throughput and MFU. Pure.

Units and "not known" are those of :mod:`figures`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from math import sqrt
from operator import itemgetter

from msgspec import Struct, field

from warmwatch.shared import record
from warmwatch_monitor.model.machine import peak_flops
from warmwatch_monitor.published import Trend, WarmupSpan

# 1, 2.5 and 5 in each decade from a millisecond to 1000 s: the buckets of the step histograms.
BUCKET_SECONDS = (*(m * 10**d / 1e9 for d in range(5, 11) for m in (10, 25, 50)), 1000.0)
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


class Steps(Struct, frozen=True, kw_only=True):
    """The rank's steps.

    Attributes:
        count: all of them. first_at, last_at: when they ended.
        first_seconds, last_seconds: their length, ``None`` where nothing marked their beginning.
        before_first_compile_seconds: compile time before step 1, as in an evaluation; ``None`` if
        not known.
        recent_seconds: median length of the clean steps of the last minute, of recent_count, 3 to
        64, their mean if they have several lengths in turn, or with GPUs their wall time; ``None``
        where there are fewer, or the record is of a release that did not store them.
        averaged: whether recent_seconds is such a mean of several lengths.
        settled: whether recent_seconds is the speed, rather than one that still changes or that is
        of few steps; ``None`` where that is not known. trend: ``faster`` or ``slower`` where they
        get so; newest_seconds: the median of the newest newest_count steps then.
        clean: those without compile activity, of the whole run. touched: those with it.
        touched_lately: how many of the last 10 were touched.
        repeated: for how many steps in a row one function has compiled again, while it goes on.
        tokens, samples: of all steps; ``None`` where the user did not set the work per step.
        batches: delivered by DataLoaders. batch_wait_seconds: the time spent waiting for them.
        last_batch_at: when the last one was handed out.
        optimizer: whether the process made an optimizer of ``torch.optim``, so that steps are
        expected; ``None`` where that is not known.
    """

    count: int = 0
    first_at: float | None = None
    last_at: float | None = None
    first_seconds: float | None = None
    last_seconds: float | None = None
    before_first_compile_seconds: float | None = None
    recent_seconds: float | None = None
    recent_count: int | None = None
    averaged: bool = False
    settled: bool | None = None
    newest_seconds: float | None = None
    newest_count: int | None = None
    trend: Trend | None = None
    clean: Lengths = Lengths()
    touched: Lengths = Lengths()
    touched_lately: int | None = None
    repeated: int = 0
    tokens: int | None = None
    samples: int | None = None
    batches: int | None = None
    batch_wait_seconds: float | None = None
    last_batch_at: float | None = None
    optimizer: bool | None = None

    @property
    def length(self) -> float | None:
        """How long a step takes now: what views mean by "a step"."""
        return self.recent_seconds or self.clean.typical


DTYPE = "bfloat16"  # the MFU refers to its peak, unless the user sets another type
_FLOPS_PER_PARAMETER = 6  # for each token: 2 in the forward, 4 in the backward

# origins of the operations of a step
FORMULA, COUNTED = "6 x parameters x tokens", "counted in the compiled graphs"
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
    known = [peak for peak in peaks if peak is not None]
    if operations is None or not step_seconds or not known or len(known) != len(peaks):
        return None
    return Utilization(
        ratio=operations / step_seconds / sum(known),
        peak_flops=sum(known),
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


class Pauses(Struct, frozen=True, kw_only=True):
    """Waits of the training other than compilation; ``None`` if its torch has no hook point.

    Attributes:
        saving_seconds: checkpoints, the one in progress included. saving_since: when that began,
        ``None`` if there is none; saving_for_seconds: since then. evaluating_*: the same for
        evaluations, and evaluations: how many have ended; ``None`` until one was reported.
        evaluation_batch_seconds: their length per batch, without those that compiled.
        before_seconds: saves and evaluations before the first compile activity, or before the end
        of step 1 if that came earlier. warmup_seconds: those between the compile activities of the
        first warm-up.
        between_cells_since: when the last cell of its notebook ended, ``None`` where one runs;
        between_cells_for_seconds: since then.
    """

    saving_seconds: float | None = None
    saving_since: float | None = None
    saving_for_seconds: float | None = None
    evaluating_seconds: float | None = None
    evaluating_since: float | None = None
    evaluating_for_seconds: float | None = None
    evaluations: int | None = None
    evaluation_batch_seconds: float | None = None
    before_seconds: float | None = None
    warmup_seconds: float | None = None
    between_cells_since: float | None = None
    between_cells_for_seconds: float | None = None
