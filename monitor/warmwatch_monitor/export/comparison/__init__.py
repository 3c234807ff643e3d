"""Runs beside each other: what each cost and is worth, and when what it cost is paid back. Pure."""

from __future__ import annotations

from warmwatch_monitor.export.comparison.parts import Comparison
from warmwatch_monitor.export.comparison.whole import compare

__all__ = ["Comparison", "compare"]
