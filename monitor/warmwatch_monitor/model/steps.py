"""Figures of a rank's steps and warm-ups; work per step, throughput and MFU. Pure.

Units and "not known" are those of :mod:`figures`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from math import sqrt
from operator import itemgetter
from typing import Annotated

from msgspec import Struct, field

from warmwatch.shared import record
from warmwatch_monitor.figures.declared import figure
from warmwatch_monitor.figures.training import (
    BATCHES,
    COUNTED,
    FORMULA,
    DataWait,
    PublishedSteps,
    StepCount,
    WarmupSpan,
)
from warmwatch_monitor.figures.units import Epoch
from warmwatch_monitor.model.machine import peak_flops

# Six in each decade from a millisecond to 1000 s, less than 1.5 apart: the buckets of the step
# histogram. A quantile from wider ones is far off: 175 ms for steps of 106 ms. They are bounds of
# the record's bins.
_OF_A_DECADE = (100, 147, 215, 316, 464, 681)
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
