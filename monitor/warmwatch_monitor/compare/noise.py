"""How far the steps of several runs of one program are apart. Pure.

The interval of one run's steps does not include what changes from run to run: load of the machine,
clocks, memory layout. Only repeated runs show that. Their spread is relative and pooled over all
programs that ran more than once.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt

from msgspec import Struct

from warmwatch_monitor.model.steps import t_95

UNMEASURED = 0.05  # relative difference that may be noise if nothing ran twice


class Repeats(Struct, frozen=True, kw_only=True):
    """Several runs of one program."""

    program: str
    """The name of the program: a mode, or a run."""
    runs: tuple[str, ...]
    """The label or id of each run."""
    seconds: tuple[float, ...]
    """The length of a clean step in each run."""


class Noise(Struct, frozen=True, kw_only=True):
    """How far runs of one program are apart. Every `uncertainty` of a step includes it."""

    difference: float
    """A relative difference between the steps of two runs that may be noise (95 %)."""
    measured: bool = False
    """Whether it was measured; otherwise it is assumed."""
    repeats: tuple[Repeats, ...] = ()
    """The runs that it was measured with."""

    def of(self, seconds: float) -> float:
        """What it adds to the uncertainty of a step of this length."""
        return seconds * self.difference / sqrt(2)


def noise(repeats: Sequence[Repeats]) -> Noise:
    """The noise between runs, from the programs that ran more than once.

    The standard deviation of the logarithms of step lengths, times Student's t: two runs say
    little, so their interval is wide.
    """
    known = tuple(one for one in repeats if len(one.seconds) > 1)
    freedom = sum(len(one.seconds) - 1 for one in known)
    if not freedom:
        return Noise(difference=UNMEASURED)
    squares = sum(map(_squares, known))
    difference = sqrt(2 * squares / freedom) * t_95(freedom)
    return Noise(difference=difference, measured=True, repeats=known)


def _squares(of: Repeats) -> float:
    lengths = [log(one) for one in of.seconds]
    mean = sum(lengths) / len(lengths)
    return sum((one - mean) ** 2 for one in lengths)
