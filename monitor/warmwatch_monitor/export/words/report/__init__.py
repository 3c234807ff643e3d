"""A report in words, room by room. Pure."""

from __future__ import annotations

from warmwatch_monitor.export.words.report.page import Moment, page, short

__all__ = ["Moment", "page", "short"]
