"""A report's charts as terminal text; letters, so that no colour is needed. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from warmwatch_monitor.output.amounts import took
from warmwatch_monitor.output.states import PHASE_STYLES
from warmwatch_monitor.report.parts import Report
from warmwatch_monitor.report.strips import Strip, labelled, strips, whole

# a letter and a colour for each phase
_LETTERS = {"kernel_compile": "k", "autotune": "t", "cudagraph": "g"}
PHASES = {name: (_LETTERS.get(name, name[0]), style) for name, style in PHASE_STYLES.items()}
_LABEL = 22


def timeline(report: Report, width: int) -> list[Text]:
    """A bar for each function, on the compiler's clock."""
    rows, room = strips(report), max(20, width - _LABEL - 3)
    seconds = whole(rows)
    if not seconds:
        return []
    bars = [tuple(_bar(one, seconds, room)) for one in rows]
    named = zip(rows, bars, strict=True)
    lines = [Text.assemble(f"  {_named(one):{_LABEL}} ", *bar) for one, bar in named]
    drawn = {sign for bar in bars for sign, _ in bar}  # a short phase may have no character
    key = ", ".join(f"{sign} {name}" for name, (sign, _) in PHASES.items() if sign in drawn)
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
            yield PHASES.get(max(filled, key=lambda phase: filled[phase]), PHASES["other"])
