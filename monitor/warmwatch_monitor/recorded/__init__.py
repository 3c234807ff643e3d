"""From one record to the figures of its rank: clocks, units and names. Pure.

The record's words are monotonic nanoseconds in which 0 is "not yet"; here that ends.
"""

from __future__ import annotations

from warmwatch_monitor.recorded.figures import figures
from warmwatch_monitor.recorded.kept import forget_others, kept

__all__ = ["figures", "forget_others", "kept"]
