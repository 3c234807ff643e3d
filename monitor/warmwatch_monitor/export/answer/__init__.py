"""The ``/status`` answer: one Snapshot as the contract's JSON object."""

from __future__ import annotations

from warmwatch_monitor.export.answer.compile import progress
from warmwatch_monitor.export.answer.status import chosen, reached, status

__all__ = ["chosen", "progress", "reached", "status"]
