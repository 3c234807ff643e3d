"""What all of them show."""

from __future__ import annotations

from msgspec import Struct

from warmwatch_monitor.export.words.growth import remark
from warmwatch_monitor.gate.growth import Comparison, Held


class Result(Struct, frozen=True, kw_only=True):
    """How a check came out.

    Attributes:
        against: what it was held against, in words. comparison: ``None`` where nothing was
        compared, and ``problem`` says why. accept: the command that accepts what grew.
    """

    against: str
    comparison: Comparison | None = None
    problem: str | None = None
    accept: str | None = None

    @property
    def held(self) -> tuple[Held, ...]:
        return self.comparison.held if self.comparison else ()

    @property
    def grew(self) -> tuple[Held, ...]:
        return self.comparison.grew if self.comparison else ()

    @property
    def problems(self) -> list[str]:
        """Why it cannot pass though nothing grew, or beside that."""
        found = [] if self.problem is None else [self.problem]
        remarks = self.comparison.remarks if self.comparison else ()
        return found + [remark(one) for one in remarks if one.grave]

    @property
    def notes(self) -> list[str]:
        remarks = self.comparison.remarks if self.comparison else ()
        return [remark(one) for one in remarks if not one.grave]

    @property
    def passed(self) -> bool:
        return not self.grew and not self.problems
