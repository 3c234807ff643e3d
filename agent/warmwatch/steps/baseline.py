"""The eager baseline: the first steps of a run, against which compiling is measured.

Only where the user asked for it, ``attach(baseline_steps=20)``, for it changes the run: these steps
run as they were written, and all compilation comes after them.
"""

from __future__ import annotations

from typing import Protocol


class Stance(Protocol):
    """By what nothing is compiled."""

    def holds(self) -> bool:
        """Whether it is in force."""

    def give_back(self) -> None:
        """Put back what was there before."""


class Baseline:
    """``steps`` of them, while ``stance`` holds. Where the user sets another, they are over."""

    def __init__(self, steps: int, stance: Stance) -> None:
        self.steps, self.stance = steps, stance
        self._lengths: list[int] = []
        self.over = False

    def step(self, count: int, length: int) -> bool:
        """Step number ``count`` was marked, of ``length`` ns, 0 where that tells nothing.

        Whether it was the last of them.
        """
        held = self.stance.holds()
        if held and length:
            self._lengths.append(length)
        if held and count < self.steps:
            return False
        self.end()
        self.steps = count
        return True

    def end(self) -> None:
        """Compile from now on."""
        self.stance.give_back()
        self.over = True

    def renewed(self) -> Baseline | None:
        """That of a forked child, which inherits the stance and has made no step yet."""
        return Baseline(self.steps, self.stance) if not self.over else None

    @property
    def median_ns(self) -> int | None:
        """Of those that are known; ``None`` where none is."""
        lengths = sorted(self._lengths)
        middle = len(lengths) // 2
        if not lengths:
            return None
        return lengths[middle] if len(lengths) % 2 else sum(lengths[middle - 1 : middle + 1]) // 2
