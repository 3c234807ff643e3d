"""A GPT trained as its user would, and timed by hand: ``python by_hand.py FILE [--mode MODE] ...``.

Writes FILE when it ends, also where Ctrl-C ends it: each step between two CUDA events, the first
step by the wall clock, and the memory by the allocator's own peaks. It is nobody's test by itself:
``gpu.beside_events`` runs it with Warmwatch and without.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from benchmarks import gpt

NOT_YET_STEADY = 20  # steps


def main() -> None:
    """Train until the steps are done or Ctrl-C is pressed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--mode", default="default")
    parser.add_argument("--steps", type=int, default=10**6)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--tokens", action="store_true", help="tell Warmwatch what a step is worth")
    chosen = parser.parse_args()
    if chosen.tokens:
        import warmwatch

        warmwatch.attach(tokens_per_step=gpt.BATCH * gpt.CONTEXT)
    measured: dict[str, Any] = {}
    with suppress(KeyboardInterrupt):
        train(chosen.mode, chosen.steps, chosen.log_every, measured)
    events = measured.pop("events")
    torch.cuda.synchronize()
    measured["steps"] = len(events)
    measured["step"] = median(
        [a.elapsed_time(b) / 1e3 for a, b in pairwise(events[NOT_YET_STEADY:])]
    )
    measured["memory"] = torch.cuda.max_memory_allocated()
    chosen.file.with_suffix(f".{mode_of(chosen.mode)}.json").write_text(json.dumps(measured))


def mode_of(chosen: str) -> str:
    """A command that runs every mode sets these variables; a run by hand has none."""
    if os.environ.get("TORCHDYNAMO_DISABLE") == "1":
        return "eager"
    return os.environ.get("WARMWATCH_MODE", chosen)


def train(mode: str, steps: int, log_every: int, measured: dict[str, Any]) -> None:
    """A training loop that looks at its loss now and then, as most do."""
    trainer = gpt.Trainer(mode)
    measured["parameters"] = trainer.parameters
    measured["events"] = events = []
    torch.cuda.synchronize()
    began = time.perf_counter()
    for step in range(steps):
        loss = trainer.step()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        events.append(event)
        if step == 0:
            torch.cuda.synchronize()
            measured["first_step"] = time.perf_counter() - began
            measured["first_memory"] = torch.cuda.max_memory_allocated()
        if step % log_every == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)


def median(values: list[float]) -> float | None:
    """Of none there is none."""
    return statistics.median(values) if values else None


if __name__ == "__main__":
    main()
