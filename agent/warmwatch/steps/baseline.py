"""The eager baseline: the first steps of a run, against which compiling is measured.

Only if the user requested it with ``attach(baseline_steps=20)``, because it changes the run: these
steps run eagerly, and all compilation comes after them.
"""

from __future__ import annotations

from typing import Protocol


class Stance(Protocol):
    """The stance that disables compilation."""

    def holds(self) -> bool:
        """Whether it is in force."""

    def restore(self) -> None:
        """Restore the earlier stance."""


class Baseline:
    """The first ``steps`` steps, while ``stance`` holds. Another stance of the user ends them."""

    def __init__(self, steps: int, stance: Stance) -> None:
        self.steps, self.stance = steps, stance
        self._lengths: list[int] = []
        self.over = False

    def step(self, count: int, length: int) -> bool:
        """Step number ``count`` was marked, of ``length`` ns; 0 if the length is unknown.

        Returns whether it was the last baseline step.
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
        self.stance.restore()
        self.over = True

    def renewed(self) -> Baseline | None:
        """The baseline of a forked child, which inherits the stance and has marked no step yet."""
        return Baseline(self.steps, self.stance) if not self.over else None

    @property
    def median_ns(self) -> int | None:
        """The median of the known lengths; ``None`` if there is none."""
        lengths = sorted(self._lengths)
        middle = len(lengths) // 2
        if not lengths:
            return None
        return lengths[middle] if len(lengths) % 2 else sum(lengths[middle - 1 : middle + 1]) // 2
