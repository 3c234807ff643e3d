"""Throughput, MFU, and what limits the speed, in words: ``0.94 M tokens/s, MFU 41 %``. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the command line formats numbers without loading the model
    from warmwatch_monitor.model import RankView

_UNITS = ((1e9, " G"), (1e6, " M"), (1e3, "k"))


def throughput(view: RankView) -> str:
    """Throughput at its recent speed; empty if the work per step is not known."""
    worth, seconds, mfu = view.figures.worth, view.figures.steps.length, view.utilization
    if not seconds:
        return ""
    return rates(
        worth.tokens / seconds if worth.tokens is not None else None,
        worth.samples / seconds if worth.samples is not None else None,
        mfu.ratio if mfu else None,
        estimated=bool(mfu and mfu.estimated),
    )


def rates(
    tokens: float | None, samples: float | None, mfu: float | None, *, estimated: bool
) -> str:
    """Tokens and samples a second, and MFU as a ratio; each is left out where it is not known."""
    return ", ".join(_parts(tokens, samples, mfu, "about " if estimated else ""))


def _parts(
    tokens: float | None, samples: float | None, mfu: float | None, about: str
) -> Iterator[str]:
    for number, noun in ((tokens, "tokens"), (samples, "samples")):
        if number is not None:
            yield f"{_rounded(number)} {noun}/s"
    if mfu is not None:
        yield f"MFU {about}{mfu * 100:.2g} %"


def limited(verdict: str, share: float | None, evidence: Sequence[str]) -> str:
    """``limited by input: 62 % of the time waits for batches``; without evidence the share."""
    if evidence:
        return f"limited by {verdict}: {', '.join(evidence)}"
    return limited_shortly(verdict, share)


def limited_shortly(verdict: str, share: float | None) -> str:
    """``limited by input (62 %)``."""
    return f"limited by {verdict}" + ("" if share is None else f" ({100 * share:.0f} %)")


def _rounded(number: float) -> str:
    """Three figures: ``943``, ``12.3k``, ``1.02 M``."""
    for size, unit in _UNITS:
        if number >= 0.9995 * size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"
