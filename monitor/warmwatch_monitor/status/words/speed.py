"""Throughput, MFU, limit of the speed, and gain over the eager baseline, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from warmwatch.shared.phrases import baseline_words, counted, exact_length

if TYPE_CHECKING:  # the command line formats numbers without loading the model
    from warmwatch_monitor.model import Figures, RankView

_UNITS = ((1e9, " G"), (1e6, " M"), (1e3, "k"))


def throughput(view: RankView) -> str:
    """``0.94 M tokens/s, MFU 41 %`` at its recent speed; empty if the work of a step is unknown."""
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
    """Tokens and samples a second, and MFU as a ratio; unknown ones are left out."""
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


def baseline_progress(figures: Figures) -> str:
    """``baseline: step 7 of 20, eager on purpose``; empty without a baseline in progress."""
    baseline = figures.baseline
    if baseline is None or figures.steps.count >= baseline.steps:
        return ""
    return baseline_words(figures.steps.count, baseline.steps)


def brought(figures: Figures) -> str:
    """``1.8x as fast as eager; break-even at step 1,016``; empty if unknown."""
    known = figures.gain
    return "" if known is None else gained(known.speed_up, known.paid_back_at)


def gained(speed_up: float, paid_back_at: int | None) -> str:
    """The speed-up of compiled steps over eager ones, and the step of the break-even."""
    fast = f"{speed_up:.2g}x as fast as eager"
    if speed_up <= 1:
        return f"{fast}, so compiling never breaks even"
    return fast if paid_back_at is None else f"{fast}; break-even at step {paid_back_at:,}"


def baseline_measured(figures: Figures) -> str:
    """The result of the baseline; empty without a completed one."""
    baseline = figures.baseline
    if baseline is None or baseline.seconds is None:
        return ""
    steps = counted(baseline.steps, "step")
    return f"the first {steps} ran eagerly on purpose, {exact_length(baseline.seconds)} each"
