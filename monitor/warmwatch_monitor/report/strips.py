"""The compiler's time as strips, one for each function, for charts and terminals. Pure.

The time axis is the compiler's own clock, so compilations follow each other without gaps: an hour
of clean steps between two of them would hide both. Phases within a compilation are in their usual
order, because their durations are known and their begins are not.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from rich.text import Text

from warmwatch.shared.phrases import short_place
from warmwatch_monitor.model import PHASES
from warmwatch_monitor.output.amounts import took
from warmwatch_monitor.output.states import PHASE_STYLES
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


# a letter and a colour for each phase
_LETTERS = {"kernel_compile": "k", "autotune": "t", "cudagraph": "g"}
_SIGNS = {name: (_LETTERS.get(name, name[0]), style) for name, style in PHASE_STYLES.items()}
_LABEL = 22


def timeline(report: Report, width: int) -> list[Text]:
    """A bar of letters for each function, on the compiler's clock: no colour is needed."""
    rows, room = strips(report), max(20, width - _LABEL - 3)
    seconds = whole(rows)
    if not seconds:
        return []
    bars = [tuple(_bar(one, seconds, room)) for one in rows]
    named = zip(rows, bars, strict=True)
    lines = [Text.assemble(f"  {_named(one):{_LABEL}} ", *bar) for one, bar in named]
    drawn = {sign for bar in bars for sign, _ in bar}  # a short phase may have no character
    key = ", ".join(f"{sign} {name}" for name, (sign, _) in _SIGNS.items() if sign in drawn)
    end = f"0 s{took(seconds):>{room - 3}}"
    return [*lines, Text(f"  {'':{_LABEL}} {end}", style="dim"), Text(f"  {key}", style="dim")]


def _named(one: Strip) -> str:
    name = "others" if one.function is None else labelled(one.function, "-")
    return name if len(name) <= _LABEL else f"...{name[-(_LABEL - 3) :]}"


def _bar(one: Strip, seconds: float, room: int) -> Iterator[tuple[str, str]]:
    """For each character, the phase that fills most of it; shorter phases are invisible."""
    for place in range(room):
        begin, end = place * seconds / room, (place + 1) * seconds / room
        filled: dict[str, float] = {}
        for piece in one.pieces:
            within = min(end, piece.end) - max(begin, piece.begin)
            if within > 0:
                filled[piece.phase] = filled.get(piece.phase, 0.0) + within
        if not filled:
            yield ".", "dim"
        else:
            yield _SIGNS.get(max(filled, key=lambda phase: filled[phase]), _SIGNS[OTHER])
