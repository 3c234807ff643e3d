"""The compiler's time as strips, one for each function, for charts. Pure.

The time axis is the compiler's own clock, so compilations follow each other without gaps: an hour
of clean steps between two of them would hide both. Phases within a compilation are in their usual
order, because their durations are known and their begins are not.
"""

from __future__ import annotations

from msgspec import Struct

from warmwatch.shared.phrases import short_place
from warmwatch_monitor.model import PHASES
from warmwatch_monitor.report.parts import Function, Priced, Report

MOST = 12
OTHER = "other"


class Piece(Struct, frozen=True):
    """A phase of a compilation, from ``begin`` to ``end`` seconds on the compiler's clock."""

    phase: str
    begin: float
    end: float
    of: Priced


def labelled(function: Function, unknown: str) -> str:
    """The label of a strip."""
    return short_place(function.name, function.file) if function.name else unknown


class Strip(Struct, frozen=True):
    """A function's pieces; ``function`` is ``None`` for the cheap ones together."""

    function: Function | None
    pieces: tuple[Piece, ...]


def strips(report: Report) -> tuple[Strip, ...]:
    """The most expensive functions first, as in the table."""
    ordered = sorted((one for each in report.functions for one in each.times), key=_began)
    pieces: dict[tuple[object, ...], list[Piece]] = {}
    clock = 0.0
    for one in ordered:
        key = one.name, one.file, one.line
        for phase, seconds in _phases(one):
            pieces.setdefault(key, []).append(Piece(phase, clock, clock + seconds, one))
            clock += seconds
    shown = [
        Strip(each, tuple(pieces.get((each.name, each.file, each.line), ())))
        for each in report.functions[:MOST]
    ]
    rest = [
        piece
        for each in report.functions[MOST:]
        for piece in pieces.get((each.name, each.file, each.line), ())
    ]
    return (*shown, *([Strip(None, tuple(rest))] if rest else []))


def whole(of: tuple[Strip, ...]) -> float:
    """The end of the compiler's clock."""
    return max((piece.end for strip in of for piece in strip.pieces), default=0.0)


def _began(one: Priced) -> float:
    return one.began


def _phases(one: Priced) -> list[tuple[str, float]]:
    known = [(name, one.phase_seconds[name]) for name in PHASES if one.phase_seconds.get(name)]
    rest = (one.seconds or 0.0) - sum(seconds for _, seconds in known)
    return [*known, (OTHER, rest)] if not known and rest > 0 else known
