"""When step 1 began. Nothing marks that, so its first compile activity counts.

An evaluation may compile before it. So may code that runs before there is an optimizer.
"""

from __future__ import annotations

from array import array

from warmwatch.shared.record import COMPILE_INDEX as AT
from warmwatch.shared.record import KINDS, PHASES

_PHASES = slice(AT["phase_ns"], AT["phase_ns"] + len(PHASES))
_BACKWARDS = AT["compilations"] + KINDS.index("backward")


class FirstStep:
    """The begin of step 1: the first activity after an evaluation and the first optimizer.

    If there is none, step 1 began with that evaluation's end.

    Attributes:
        began_ns: as known so far; 0 if nothing has compiled or evaluated.
    """

    def __init__(self, block: array[int]) -> None:
        self._block, self._awaits_activity = block, True
        self.began_ns = 0

    def activity_began(self, now: int) -> None:
        if self._awaits_activity:
            self._begins(now)
            self._awaits_activity = False

    def evaluated(self, now: int) -> None:
        self._begins(now)
        self._awaits_activity = True

    def optimizer_made(self) -> None:
        """The first one was made. It may be made within step 1, after a backward."""
        self._awaits_activity |= not self._block[_BACKWARDS]

    def _begins(self, now: int) -> None:
        if not self._block[AT["first_step_ns"]]:  # else step 1 is over
            self.began_ns = now
            self._block[AT["before_first_step_ns"]] = sum(self._block[_PHASES])
