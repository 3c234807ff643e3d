"""Whether two programs differ in speed by more than their own runs do. Pure.

A sample is a run, not a step: steps of one run share its clocks, its memory layout and its
neighbours. docs/design/comparing-runs.md: why it is done so, and how often it is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, log, sqrt

from msgspec import Struct

# of Student's t, two-sided, by degrees of freedom
_T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
# relative: a run's own step is known no better, so runs that agree by chance prove nothing
_FINEST = 0.005

FASTER, SLOWER = "faster", "slower"
WITHIN_NOISE, ONCE, DISTURBED, SAME = "within_noise", "once", "disturbed", "same_program"


class Run(Struct, frozen=True, kw_only=True):
    """A run of a program: one sample of its speed."""

    id: str
    """Its id in the history, or its name in this comparison."""
    began: float
    """When it began."""
    seconds: float
    """Length of its clean step."""
    disturbed: str | None = None
    """What slowed it, so that it says nothing about the program: `CPU contention`, or another run
    on a host without a GPU; null if nothing is known to."""
    cost_seconds: float | None = None
    """What compiling cost in it, as in `cost_seconds` of a side; null if unknown."""


class Difference(Struct, frozen=True, kw_only=True):
    """How much faster one program is than another, by the means of their runs."""

    verdict: str
    """`faster` or `slower`: by more than their runs differ among themselves. `within_noise`: not by
    more. Not known: `once` (one of them has a single run), `disturbed` (a compared run was; of a
    mode, all runs), `same_program` (both are runs of one program, as far as recorded)."""
    ratio: float
    """Mean step of the other, divided by its own: over 1 if it is faster. With `same_program`, of
    the two runs."""
    low: float | None = None
    """The ratio is at least this, with 95 % confidence; null if not known."""
    high: float | None = None
    """It is at most this."""

    @property
    def claimed(self) -> bool:
        return self.verdict in (FASTER, SLOWER)


def usable(runs: Iterable[Run]) -> tuple[Run, ...]:
    """The runs that were not disturbed; the first one alone, if it was.

    The first is the compared one: no figure of another run is given for its own.
    """
    runs = tuple(runs)
    if runs and runs[0].disturbed is not None:
        return runs[:1]
    return tuple(run for run in runs if run.disturbed is None)


def mean(runs: Sequence[Run]) -> float | None:
    """The geometric mean of their steps, which ratios are taken of."""
    used = usable(runs)
    return exp(sum(log(run.seconds) for run in used) / len(used)) if used else None


def difference(runs: Sequence[Run], others: Sequence[Run], *, is_same: bool = False) -> Difference:
    """How much faster ``runs`` of one program are than those of another.

    The first run of each is the compared one. Depends on these runs alone. Both programs need two,
    because a single run has no spread. A run that may be of either, because too little of it is
    recorded, is left out.

    ``is_same``: the compared runs are of one program, as they are if either is in both groups.
    """
    ids, their_ids = ({run.id for run in program} for program in (runs, others))
    if is_same or runs[0].id in their_ids or others[0].id in ids:
        return Difference(verdict=SAME, ratio=others[0].seconds / runs[0].seconds)
    mine = usable(run for run in runs if run.id not in their_ids)
    theirs = usable(run for run in others if run.id not in ids)
    ratio = (mean(theirs) or 0.0) / (mean(mine) or 1.0)
    if any(run.disturbed for run in (*mine, *theirs)):
        return Difference(verdict=DISTURBED, ratio=ratio)
    if min(len(mine), len(theirs)) < 2:
        return Difference(verdict=ONCE, ratio=ratio)
    gain, off = _without_drift(mine, theirs)
    off += abs(gain - log(ratio))  # the interval of the means covers that without drift
    low, high = log(ratio) - off, log(ratio) + off
    verdict = FASTER if low > 0 else SLOWER if high < 0 else WITHIN_NOISE
    return Difference(verdict=verdict, ratio=ratio, low=exp(low), high=exp(high))


def _without_drift(mine: Sequence[Run], theirs: Sequence[Run]) -> tuple[float, float]:
    """The logarithm of the ratio, and half the width of its 95 % interval.

    Least squares of the logarithms by program and by the order of the runs: a machine that gets
    slower steadily is no difference of the programs. The degrees of freedom are those of the
    program with fewer runs, which holds for programs whose runs do not vary alike.
    """
    order = sorted((*mine, *theirs), key=lambda run: run.began)
    lengths = _centred([-log(run.seconds) for run in order])
    drift = _centred([float(at) for at in range(len(order))])
    program = _centred([float(run in mine) for run in order])
    of_drift = _dot(program, drift) / _dot(drift, drift)
    program = [value - of_drift * at for value, at in zip(program, drift, strict=True)]
    size = _dot(program, program)
    gain, slope = _dot(program, lengths) / size, _dot(drift, lengths) / _dot(drift, drift)
    squares = _dot(lengths, lengths) - gain**2 * size - slope**2 * _dot(drift, drift)
    spread = max(_FINEST, sqrt(max(0.0, squares) / (len(order) - 3)))
    freedom = min(len(mine), len(theirs)) - 1
    return gain, _t_95(freedom) * spread / sqrt(size)


def _centred(values: Sequence[float]) -> list[float]:
    middle = sum(values) / len(values)
    return [value - middle for value in values]


def _dot(values: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(values, other, strict=True))


def _t_95(freedom: int) -> float:
    return _T_95[min(freedom, len(_T_95)) - 1]
