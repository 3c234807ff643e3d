"""Formats amounts for reports, finer than in sentences. Pure.

A sentence has "2 min" for progress; a report has "118 s" for a cost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_LARGE = ((1e9, " GJ"), (1e6, " MJ"), (1e4, " kJ"))


def if_known(words: Callable[[T], str], value: T | None) -> str | None:
    """``words(value)``; ``None`` if the value is not known."""
    return None if value is None else words(value)


def took(seconds: float) -> str:
    """``116 ms``, ``2.14 s``, ``43.2 s``, ``118 s``, ``12 min 5 s``, ``3 h 5 min``, ``2 d 4 h``."""
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 99.95:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    if whole < 600:
        return f"{whole} s"
    if whole < 7200:
        return _two(whole, 60, "min", 1, "s")
    if whole < 48 * 3600:
        return _two(whole, 3600, "h", 60, "min")
    return _two(whole, 86400, "d", 3600, "h")


def _two(whole: int, large: int, of_large: str, small: int, of_small: str) -> str:
    many, rest = divmod(whole, large)
    few = rest // small
    return f"{many} {of_large} {few} {of_small}" if few else f"{many} {of_large}"


def number(value: float) -> str:
    """At least three digits, with thousands separators: ``0.42``, ``17.4``, ``1,016``."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def percent(ratio: float) -> str:
    """``87.1 %``; a small ratio is not rounded to 0: ``< 0.1 %``."""
    share = 100 * ratio
    return "< 0.1 %" if 0 < share < 0.05 else f"{share:.1f} %"


def energy(joules: float) -> str:
    """``842 J``, ``39.2 kJ``."""
    for size, unit in _LARGE:
        if joules >= size:
            return f"{joules / (1e3 if size == 1e4 else size):.3g}{unit}"
    return f"{number(joules)} J"


def size(many: float) -> str:
    """``14.6 GB``, decimal."""
    for one, unit in _UNITS:
        if many >= one:
            return f"{many / one:.3g} {unit}"
    return f"{many:.0f} B"


def money(amount: float) -> str:
    """A price has no currency here: ``0.42``, ``1,016.50``."""
    return f"{amount:,.2f}" if amount >= 0.1 else f"{amount:.2g}"


def rate(value: float) -> str:
    """``943``, ``12.3k``, ``1.02 M``, as tokens a second are."""
    for one, unit in ((1e9, " G"), (1e6, " M"), (1e3, "k")):
        if value >= 0.9995 * one:
            return f"{value / one:.3g}{unit}"
    return f"{value:.3g}"
