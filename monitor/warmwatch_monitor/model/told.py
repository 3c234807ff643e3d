"""What a whole journal tells of compilations, one by one: read when somebody asks why."""

from __future__ import annotations

from msgspec import Struct

from warmwatch_monitor.model.compilations import Compilation
from warmwatch_monitor.model.journal import CudagraphSkip, Fallback, GraphBreak


class Told(Struct, frozen=True, kw_only=True):
    """All that one journal tells, oldest first.

    ``late``: those of the recompiles that came when the rank had been warm. ``skips``: of CUDA
    graphs, beside those of which a compilation tells.
    """

    compilations: tuple[Compilation, ...] = ()
    late: tuple[Compilation, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()
    skips: tuple[CudagraphSkip, ...] = ()

    @property
    def recompiles(self) -> tuple[Compilation, ...]:
        return tuple(one for one in self.compilations if one.category is not None)


NOTHING = Told()
