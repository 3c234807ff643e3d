"""What a run's Account comes to: one frozen value, which the views put on pages and in JSON. Pure.

Everything that speaks of a run after the fact reads it (``warmwatch report``, the account that
``warmwatch run --report`` ends with, the comparison), so there are no two accounts that disagree.
"""

from __future__ import annotations

from warmwatch_monitor.export.report.parts import Report
from warmwatch_monitor.export.report.whole import report

__all__ = ["Report", "report"]
