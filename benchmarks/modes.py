"""Each mode of torch.compile beside eager on a real GPU; ``python -m benchmarks.modes FILE``.

A fresh process and an empty compile cache for each mode, the agent attached and a daemon beside it:
the times are the training's own, the GPU-seconds and joules are what Warmwatch says. Writes the
table to FILE.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import served

MODES = ("eager", "default", "reduce-overhead", "max-autotune")
STEPS = 410
COLUMNS = (
    ("mode", "{mode}"),
    ("first step", "{first:.1f} s"),
    ("its peak memory", "{first_memory:.1f} GB"),
    ("steps until warm", "{steps}"),
    ("compile time", "{compile:.1f} s"),
    ("compiling: GPU-seconds", "{gpu_seconds}"),
    ("compiling: energy", "{joules}"),
    ("steady step", "{step:.1f} ms"),
    ("its energy", "{clean}"),
    ("peak memory", "{memory:.1f} GB"),
    ("break-even", "{even}"),
)


def measure(mode: str) -> dict[str, Any]:
    """One training, and the daemon's answer about it after its steps while it is alive."""
    with tempfile.TemporaryDirectory() as place:
        environ = {
            **os.environ,
            "WARMWATCH_DIR": f"{place}/records",
            "WARMWATCH_RUN": mode,
            "BENCHMARK_AGENT": "1",
            "TORCHINDUCTOR_CACHE_DIR": f"{place}/inductor",
            "TRITON_CACHE_DIR": f"{place}/triton",
        }
        with served.daemon(environ) as daemon:
            training = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.gpt", mode, str(STEPS)],
                env=environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert training.stdout
            told = json.loads(training.stdout.readline())
            told |= json.loads(training.stdout.readline())
            status = served.at_rest(daemon, mode)
            training.communicate("\n")
    return {**told, "status": status}


def row(mode: str, told: dict[str, Any], eager: dict[str, Any]) -> str:
    """A line of the table; what is not known is a dash."""
    rank = told["status"]["runs"][0]["ranks"][0]
    compiled, energy = rank["compile"], rank.get("energy") or {}
    gain = eager["step"] - told["step"]
    extra = told["first"] + told["next_nine"] - 10 * told["step"]
    values = {
        "mode": mode,
        "first": told["first"],
        "first_memory": told["first_memory_bytes"] / 1e9,
        "steps": rank["warmup"]["steps"] or "-",
        "compile": compiled["seconds"],
        "gpu_seconds": _said(compiled.get("gpu_seconds"), "{:.1f}"),
        "joules": _said(energy.get("compile_joules"), "{:,.0f} J"),
        "step": told["step"] * 1e3,
        "clean": _said(energy.get("joules_per_clean_step"), "{:.1f} J"),
        "memory": told["memory_bytes"] / 1e9,
        "even": f"{extra / gain:,.0f} steps" if gain > 0 else "-",
    }
    return "| " + " | ".join(form.format(**values) for _, form in COLUMNS) + " |"


def _said(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def table(told: dict[str, dict[str, Any]]) -> str:
    """The whole table in Markdown."""
    head = "| " + " | ".join(name for name, _ in COLUMNS) + " |"
    lines = [row(mode, one, told["eager"]) for mode, one in told.items()]
    return "\n".join([head, "|---" * len(COLUMNS) + "|", *lines, ""])


def main(path: str, modes: tuple[str, ...]) -> None:
    """Measure and write after each mode, so that what was measured stays."""
    told: dict[str, dict[str, Any]] = {}
    for mode in modes or MODES:
        told[mode] = measure(mode)
        print(json.dumps({"mode": mode, **told[mode]}), flush=True)
        Path(path).write_text(table(told))


if __name__ == "__main__":
    main(sys.argv[1], tuple(sys.argv[2:]))
