"""Whether two programs differ: how often that is claimed of equal ones, and on which runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import zip_longest
from math import exp, log

import pytest

from warmwatch_monitor.commands.compare.comparison import (
    FASTER,
    ONCE,
    SLOWER,
    WITHIN_NOISE,
    Run,
    difference,
)


def runs(name: str, *seconds: float, at: Sequence[float] = (), slowed: bool = False) -> list[Run]:
    """Runs of one program, one after another or at these times."""
    times = at or range(len(seconds))
    why = "CPU contention" if slowed else None
    return [
        Run(id=f"{name}{time}", began=time, seconds=each, disturbed=why)
        for time, each in zip(times, seconds, strict=True)
    ]


def test_runs_in_turn_that_differ_by_more_than_those_of_one_program_are_faster() -> None:
    new = runs("new", 0.036, 0.0361, 0.0359, at=(1, 3, 5))
    old = runs("old", 0.0527, 0.0525, 0.0528, at=(0, 2, 4))
    found = difference(new, old)
    assert found.verdict == FASTER
    assert found.ratio == pytest.approx(0.0527 / 0.036, rel=0.003)
    assert found.low is not None
    assert found.high is not None
    assert 1.4 < found.low < found.ratio < found.high < 1.53
    back = difference(old, new)
    assert back.verdict == SLOWER
    assert (back.low, back.high) == pytest.approx((1 / found.high, 1 / found.low))


def test_an_outlier_makes_a_difference_unknown_and_does_not_reverse_it() -> None:
    """The three eager runs of a table that recommended eager by its first run alone."""
    eager = runs("eager", 0.0601, 0.0462, 0.0467, at=(0, 2, 4))
    default = runs("default", 0.0448, 0.0445, 0.0451, at=(1, 3, 5))
    found = difference(default, eager)
    assert found.verdict == WITHIN_NOISE
    assert found.ratio > 1


def test_a_single_run_of_a_program_proves_nothing() -> None:
    found = difference(runs("new", 0.036), runs("old", 0.0527, 0.0528, 0.0526, at=(1, 2, 3)))
    assert (found.verdict, found.low, found.high) == (ONCE, None, None)
    assert found.ratio == pytest.approx(0.0527 / 0.036, rel=0.001)


# Simulated pairs of equal programs. Between runs, steps differ by 1 to 4 %; other work on the
# machine makes a run 1.25 times as long (seen on shared hosts).
_PAIRS = 300
_CONTENTION = log(1.25)


def _outliers(
    share: float, seen: float
) -> Callable[[random.Random, int, bool], tuple[float, bool]]:
    """Contention in this share of the runs; ``seen``: how often the monitor notices it."""

    def noise(chance: random.Random, _at: int, _new: bool) -> tuple[float, bool]:
        slowed = chance.random() < share
        extra = _CONTENTION if slowed else 0.0
        return chance.gauss(0, 0.01) + extra, slowed and chance.random() < seen

    return noise


KINDS: dict[str, Callable[[random.Random, int, bool], tuple[float, bool]]] = {
    "quiet": lambda chance, _at, _new: (chance.gauss(0, 0.01), False),
    "noisy": lambda chance, _at, _new: (chance.gauss(0, 0.04), False),
    "unlike": lambda chance, _at, new: (chance.gauss(0, 0.04 if new else 0.01), False),
    "drift": lambda chance, at, _new: (chance.gauss(0, 0.01) + 0.02 * at, False),
    "skewed": lambda chance, _at, _new: (chance.expovariate(50), False),
    "outliers": _outliers(0.1, 0.0),
    "contention": _outliers(0.5, 0.9),
}


def _order(old: int, new: int, *, turns: bool) -> list[bool]:
    if not turns:
        return [False] * old + [True] * new
    pairs = zip_longest([False] * old, [True] * new)
    return [one for pair in pairs for one in pair if one is not None]


def _claims(kind: str, old: int, new: int, *, turns: bool, chance: random.Random) -> float:
    """The share of pairs of equal programs of which one is claimed to be faster."""
    claims = 0
    for _ in range(_PAIRS):
        both: tuple[list[Run], list[Run]] = ([], [])
        for at, of_new in enumerate(_order(old, new, turns=turns)):
            off, seen = KINDS[kind](chance, at, of_new)
            run = Run(id=str(at), began=at, seconds=exp(off), disturbed="load" if seen else None)
            both[of_new].append(run)
        claims += difference(*both).claimed
    return claims / _PAIRS


@pytest.mark.parametrize("kind", KINDS)
def test_at_most_one_pair_of_equal_programs_in_twenty_is_called_different(kind: str) -> None:
    chance = random.Random(3)
    for turns in (True, False):
        rates = [
            _claims(kind, old, new, turns=turns, chance=chance)
            for old, new in ((2, 2), (3, 2), (3, 3), (4, 4), (2, 6), (6, 6))
        ]
        assert max(rates) <= 0.05 + 2.6 * (0.05 * 0.95 / _PAIRS) ** 0.5
        assert sum(rates) / len(rates) <= 0.05


def test_a_real_difference_is_found() -> None:
    """Of 1.48 times, in noise of 2 %: nearly always with three runs of each in turn."""
    chance, found = random.Random(5), 0
    for _ in range(_PAIRS):
        old = runs("old", *(exp(chance.gauss(0, 0.02)) for _ in range(3)), at=(0, 2, 4))
        new = runs("new", *(exp(chance.gauss(0, 0.02)) / 1.48 for _ in range(3)), at=(1, 3, 5))
        found += difference(new, old).verdict == FASTER
    assert found > 0.98 * _PAIRS
