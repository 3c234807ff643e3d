"""Trains with code that is slower than necessary: ``python slow_code.py KIND FILE``.

FILE gets PyTorch's, Triton's or the driver's own account of it.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from torch.nn.attention.flex_attention import flex_attention

import warmwatch
import warmwatch.auto

WIDTH, ROWS = 32768, 1024


@triton.jit
def softmax(source, target, WIDTH: tl.constexpr):  # noqa: N803 - Triton's own idiom
    at = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    x = tl.load(source + at)
    y = tl.exp(x - tl.max(x, 0))
    tl.store(target + at, y / tl.sum(y, 0))


@triton.autotune(configs=[triton.Config({}, num_warps=warps) for warps in (1, 2)], key=[])
@triton.jit
def tuned_softmax(source, target, WIDTH: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    x = tl.load(source + at)
    y = tl.exp(x - tl.max(x, 0))
    tl.store(target + at, y / tl.sum(y, 0))


def spills() -> dict[str, Any]:
    """Kernels of the user in a graph. Truth: the same kernels, compiled and timed by Triton."""
    x = torch.randn(ROWS, WIDTH, device="cuda")

    @torch.compile
    def both(x: torch.Tensor) -> torch.Tensor:
        out, again = torch.empty_like(x), torch.empty_like(x)
        softmax[(ROWS,)](x, out, WIDTH, num_warps=1)
        tuned_softmax[(ROWS,)](x, again, WIDTH)
        return out + again

    for _ in range(200):
        both(x).sum().item()
        warmwatch.step()
    out = torch.empty_like(x)
    found = {}
    for warps in (1, 2, 32):
        kernel = softmax[(ROWS,)](x, out, WIDTH, num_warps=warps)

        def launch(warps: int = warps) -> None:
            softmax[(ROWS,)](x, out, WIDTH, num_warps=warps)

        took = triton.testing.do_bench(launch)
        found[warps] = {"registers": kernel.n_spills, "seconds": took / 1e3}
    return {"by_warps": found}


def sizes() -> dict[str, Any]:
    """CUDA graphs of a function with dynamic sizes. Truth: the captures that PyTorch makes."""
    captures = 0
    capture = torch.cuda.CUDAGraph.capture_begin

    def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal captures
        captures += 1
        return capture(graph, *args, **kwargs)

    torch.cuda.CUDAGraph.capture_begin = capture_begin
    net = torch.nn.Sequential(
        torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256)
    ).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    compiled = torch.compile(net, mode="reduce-overhead", dynamic=True)
    steps: dict[str, list[float]] = {"new": [], "second": [], "later": []}
    widths = [64 + 8 * number for number in range(12)]
    for width in (*widths, *widths):
        for kind in ("new", "second", "later", "later"):
            began = time.perf_counter()
            loss = compiled(torch.randn(width, 256, device="cuda")).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            loss.item()
            steps[kind].append(time.perf_counter() - began)
    middle = {kind: sorted(each)[len(each) // 2] for kind, each in steps.items()}
    first = {kind: sum(each[1 : len(widths)]) / 11 for kind, each in steps.items()}
    # one capture keeps PyTorch's memory pool alive
    return {"sizes": len(widths), "captures": captures - 1, "steps": middle, "first": first}


def new_sizes() -> dict[str, Any]:
    """A new size in each step, so that no CUDA graph is ever recorded. Truth: that number."""
    net = torch.nn.Linear(256, 256).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    compiled = torch.compile(net, mode="reduce-overhead", dynamic=True)
    for width in (widths := range(64, 104)):
        compiled(torch.randn(width, 256, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return {"sizes": len(widths)}


def flex() -> dict[str, Any]:
    """Attention without ``torch.compile``. Truth: the allocator's peak, and the time of a call."""
    shape = (2, 8, 4096, 64)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))

    def attend() -> torch.Tensor:
        return flex_attention(q, k, v)

    def measured(call: Any) -> dict[str, float]:
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - before
        return {"peak": peak, "seconds": triton.testing.do_bench(call) / 1e3}

    plain = measured(attend)
    compiled = torch.compile(flex_attention)
    return {
        "scores": 2 * 8 * 4096 * 4096 * 4,
        "unfused": plain,
        "fused": measured(lambda: compiled(q, k, v)),
    }


if __name__ == "__main__":
    kind, file = sys.argv[1:]
    truth = {"spills": spills, "sizes": sizes, "new_sizes": new_sizes, "flex": flex}[kind]()
    Path(file).write_text(json.dumps(truth))
