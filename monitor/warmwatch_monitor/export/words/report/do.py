"""What to do first, in words. Pure."""

from __future__ import annotations

from warmwatch_monitor.export.document import Item, Section
from warmwatch_monitor.export.report.parts import Remedy, Report
from warmwatch_monitor.export.words.amounts import took


def to_do(report: Report) -> Section | None:
    """The dearest first."""
    if not report.do:
        return None
    several = sum(bool(one.saves) for one in report.do) > 1
    remarks = ("Each is the most that it could save alone: they do not add up.",) if several else ()
    return Section(
        "What to do first", items=tuple(_item(one) for one in report.do), remarks=remarks
    )


def _item(one: Remedy) -> Item:
    saves = f": would have saved up to {took(one.saves)}" if one.saves else ""
    return Item(f"{one.about}{saves}", (one.what,))
