"""Code that runs slower than it could: unfused attention, register spills, graphs by size."""

from __future__ import annotations

from warmwatch.shared.phrases import counted, exact_length, place
from warmwatch_monitor.model import Fallback, Figures, Recordings, Spill
from warmwatch_monitor.output.amounts import percent, size, took
from warmwatch_monitor.status.schema.compile import Inefficiency

_MOST = 10  # of each kind
# As many as Inductor accepts in a configuration that it tunes.
_SPILLED = 16
# A training, its last batch and an evaluation have three sizes.
_SIZES = 3


def inefficiencies(figures: Figures) -> list[Inefficiency]:
    """The most expensive of each kind first."""
    log = figures.log
    spills = sorted(log.spills, key=lambda one: (-(one.seconds or 0.0), -one.registers))
    sizes = sorted(log.recordings, key=lambda one: -max(one.sizes))
    found: tuple[list[Inefficiency], ...] = (
        [_unfused(one) for one in log.fallbacks if one.setting == "flex_attention"],
        [_spilled(one, figures.steps.length) for one in spills if one.registers > _SPILLED],
        [_recorded(one) for one in sizes if max(one.sizes) > _SIZES],
    )
    return [one for kind in found for one in kind[:_MOST]]


def unfused(one: Fallback, others: str = "") -> str:
    """``flex_attention`` runs unfused in `attend` (train.py:9): it is called uncompiled, ...``.

    ``others``: how many other functions call it so.
    """
    where = place(one.name, one.file, one.line)
    at = f" in {where}" if where else ""
    scores = "" if one.score_bytes is None else f", {size(one.score_bytes)} of scores a call"
    return f"`flex_attention` runs unfused{at}{others}: it is called uncompiled{scores}"


def _unfused(one: Fallback) -> Inefficiency:
    return Inefficiency(
        kind="flex_attention",
        called=_label(place(one.name, one.file, one.line)),
        bytes=one.score_bytes,
        words=unfused(one),
        advice="Call it in compiled code, or through torch.compile(flex_attention).",
    )


def _spilled(one: Spill, step: float | None) -> Inefficiency:
    launch = ""
    if one.seconds is not None:
        share = f" ({percent(one.seconds / step)} of a step)" if step else ""
        launch = f"; one launch takes {exact_length(one.seconds)}{share}"
    return Inefficiency(
        kind="register_spills",
        called=one.kernel,
        count=one.registers,
        seconds=one.seconds,
        words=f"kernel `{one.kernel}` spills {one.registers} registers of each thread{launch}",
        advice="A kernel of your own: smaller blocks, or more num_warps. One of Inductor's: a "
        "lower torch._inductor.config.max_fusion_size splits it.",
    )


def _recorded(one: Recordings) -> Inefficiency:
    where = place(one.name, one.file, one.line)
    grown = f", {size(one.grown_bytes)} reserved meanwhile" if one.grown_bytes else ""
    return Inefficiency(
        kind="cudagraph_sizes",
        called=_label(where),
        count=max(one.sizes),
        seconds=one.seconds,
        bytes=one.grown_bytes,
        words=f"CUDA graphs of {where or 'a function'} for {max(one.sizes)} sizes: "
        f"{counted(one.recorded, 'recording')} in {took(one.seconds)}{grown}",
        advice="Pad inputs to a few sizes, or set "
        "torch._inductor.config.triton.cudagraph_skip_dynamic_graphs.",
    )


def _label(where: str) -> str | None:
    return where.replace("`", "") or None
