"""A claimed speed ends with the newest steps that contradict it, before the speed follows them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import pytest

from warmwatch.shared.record import RING, packed, recent_lengths
from warmwatch.shared.record.recent import departure, level_ns, unsettled

SECOND = 10**9


def polls(lengths: Sequence[float], every: float) -> Iterator[tuple[int, float, bool, bool]]:
    """Number of the last step, the speed, whether it is settled, and whether the newest contradict
    it: at a poll every so many seconds."""
    words, total, due = list[int](), 0, 0
    for number, one in enumerate(lengths):
        word = packed(round(one * SECOND))
        words, total = [word, *words][:RING], total + word
        if number < RING or total < due:
            continue
        due = total + round(every * SECOND)
        level = level_ns(recent_lengths(words)) or 0.0
        settled = not unsettled(words, number + 1, total)
        yield number, level / SECOND, settled, departure(words, level) is not None


def changing(chance: random.Random) -> tuple[list[float], list[int], list[float]]:
    """Lengths of steps whose speed changes suddenly, for seconds; the changes, and the levels."""
    base, times = chance.choice((0.02, 0.05, 0.15)), chance.choice((0.15, 0.3, 0.5, 2, 3, 8))
    noise = chance.choice((0.02, 0.05, 0.1))
    lengths, changes, levels = list[float](), list[int](), list[float]()
    for phase in range(5):
        level, spent = base * (times if phase % 2 else 1), 0.0
        changes.append(len(lengths))
        levels.append(level)
        until = chance.uniform(2, 12) if phase else 12
        while spent < until:
            lengths.append(level * chance.lognormvariate(0, noise))
            spent += lengths[-1]
    return lengths, changes, levels


def test_a_mixture_is_not_called_the_real_speed() -> None:
    wrong = before = answers = 0
    for seed in range(24):
        lengths, changes, levels = changing(random.Random(seed))
        spans = list(pairwise([*changes, len(lengths)]))
        for number, level, settled, contradicted in polls(lengths, every=0.2):
            phase = next(at for at, (begin, end) in enumerate(spans) if begin <= number < end)
            if number < spans[phase][0] + 8:
                continue
            off = settled and not 0.75 < level / levels[phase] < 1.33
            before, wrong, answers = before + off, wrong + (off and not contradicted), answers + 1
    assert before > 0.05 * answers  # without it
    assert wrong < 0.01 * answers


@pytest.mark.parametrize(
    "length",
    [
        lambda _: 0.02,
        lambda n: (0.01, 0.03)[n % 2],
        lambda n: 0.4 if n % 8 == 7 else 0.01,
        lambda n: 0.4 if n % 32 == 31 else 0.01,
        lambda n: 0.06 if n % 10 == 0 else 0.02,
    ],
    ids=["constant", "two sizes", "8 workers", "32 workers", "a log line"],
)
@pytest.mark.parametrize("noise", [0.05, 0.2])
def test_steps_that_recur_are_part_of_the_speed(
    length: Callable[[int], float], noise: float
) -> None:
    chance = random.Random(1)
    lengths = [length(n) * chance.lognormvariate(0, noise) for n in range(1000)]
    contradicted = [found for *_, found in polls(lengths, every=0.05)]
    assert sum(contradicted) <= 0.01 * len(contradicted)


def test_launches_do_not_contradict_a_mean_that_includes_waits() -> None:
    launches, slow = [packed(5_000_000)] * RING, [packed(90_000_000)] * RING
    assert departure(launches, 31e6, waits=True) is None
    found = departure(slow, 31e6, waits=True)
    assert found
    assert (found.newest_ns, found.faster) == (90e6, False)
