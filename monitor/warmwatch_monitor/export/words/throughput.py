"""What the real speed comes to: ``0.94 M tokens/s, MFU 41 %``. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from warmwatch_monitor.model import RankView

_UNITS = ((1e9, " G"), (1e6, " M"), (1e3, "k"))


def throughput(view: RankView) -> str:
    """Of its clean steps; empty where nobody said what a step is worth."""
    return ", ".join(_parts(view))


def _parts(view: RankView) -> Iterator[str]:
    worth, seconds = view.figures.worth, view.figures.steps.clean.typical
    if not seconds:
        return
    for number, noun in ((worth.tokens, "tokens"), (worth.samples, "samples")):
        if number is not None:
            yield f"{_rounded(number / seconds)} {noun}/s"
    if mfu := view.utilization:
        about = "about " if mfu.estimated else ""
        yield f"MFU {about}{mfu.ratio * 100:.2g} %"


def _rounded(number: float) -> str:
    """Three figures: ``943``, ``12.3k``, ``1.02 M``."""
    for size, unit in _UNITS:
        if number >= 0.9995 * size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"
