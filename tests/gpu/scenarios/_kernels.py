"""Hand-written Triton kernels, launched outside of any graph, with an account of their own.

The sizes show when a kernel is new; the training times that launch. Triton's own listener, which
the agent does not use, reports cache hits and the compile time of a kernel alone: the first launch
also runs a C compiler for the launcher.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from _common import compiles, count_cache_lookup

_seen: set[tuple[str, int]] = set()
_took: dict[Any, float] = {}


@triton.autotune(
    configs=[triton.Config({"BLOCK": block}, num_warps=w) for block in (256, 1024) for w in (2, 4)],
    key=["n"],
)
@triton.jit
def tuned(source, target, n, BLOCK: tl.constexpr):  # noqa: N803 - Triton's own idiom
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, 2.0 * tl.load(source + at, mask=at < n), mask=at < n)


@triton.jit
def plain(source, target, n, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, 0.5 * tl.load(source + at, mask=at < n), mask=at < n)


def listen(**event: Any) -> None:
    """``knobs.compilation.listener``: Triton calls it for each kernel, Inductor's too."""
    if getattr(event["src"], "fn", None) in (tuned.fn, plain):
        count_cache_lookup(hit=event["cache_hit"])
        _took[event["src"].fn] = event["times"].total / 1e6


triton.knobs.compilation.listener = listen


def doubled(x: torch.Tensor) -> torch.Tensor:
    """By the tuned kernel: a size that it has not seen is tuned for."""
    out, n = torch.empty_like(x), x.numel()
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)  # noqa: E731 - as users write it
    _launch("tuned", n, lambda: tuned[grid](x, out, n))
    return out


def halved(x: torch.Tensor, block: int = 1024) -> torch.Tensor:
    """By the plain one, which is compiled for each block size."""
    out, n = torch.empty_like(x), x.numel()
    _launch("plain", block, lambda: plain[(triton.cdiv(n, block),)](x, out, n, BLOCK=block))
    return out


def _launch(name: str, size: int, launch: Any) -> None:
    if (name, size) in _seen:
        launch()
        return
    _seen.add((name, size))
    with compiles("triton", name) as event:
        launch()
        if name == "plain":
            event["seconds"] = _took[plain]
