"""Each mode of torch.compile beside eager on a real GPU; ``python -m benchmarks.modes FILE``.

Each mode gets a fresh process and an empty compile cache, with the agent attached and a daemon.
The times are the training's own, GPU-seconds and joules are those of Warmwatch. Writes the table
to FILE.
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
    ("steps of the warm-up", "{steps}"),
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
            measured = json.loads(training.stdout.readline())
            measured |= json.loads(training.stdout.readline())
            status = served.at_rest(daemon, mode)
            training.communicate("\n")
    return {**measured, "status": status}


def row(mode: str, measured: dict[str, Any], eager: dict[str, Any]) -> str:
    """A line of the table; an unknown value is a dash."""
    rank = measured["status"]["runs"][0]["ranks"][0]
    compiled, energy = rank["compile"], rank.get("energy") or {}
    gain = eager["step"] - measured["step"]
    extra = measured["first"] + measured["next_nine"] - 10 * measured["step"]
    values = {
        "mode": mode,
        "first": measured["first"],
        "first_memory": measured["first_memory_bytes"] / 1e9,
        "steps": rank["warmup"]["steps"] or "-",
        "compile": compiled["seconds"],
        "gpu_seconds": _formatted(compiled.get("gpu_seconds"), "{:.1f}"),
        "joules": _formatted(energy.get("compile_joules"), "{:,.0f} J"),
        "step": measured["step"] * 1e3,
        "clean": _formatted(energy.get("joules_per_clean_step"), "{:.1f} J"),
        "memory": measured["memory_bytes"] / 1e9,
        "even": f"{extra / gain:,.0f} steps" if gain > 0 else "-",
    }
    return "| " + " | ".join(form.format(**values) for _, form in COLUMNS) + " |"


def _formatted(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def table(measured: dict[str, dict[str, Any]]) -> str:
    """The whole table in Markdown."""
    head = "| " + " | ".join(name for name, _ in COLUMNS) + " |"
    lines = [row(mode, one, measured["eager"]) for mode, one in measured.items()]
    return "\n".join([head, "|---" * len(COLUMNS) + "|", *lines, ""])


def main(path: str, modes: tuple[str, ...]) -> None:
    """Measure each mode, and write the table after each, so that an interruption loses little."""
    measured: dict[str, dict[str, Any]] = {}
    for mode in modes or MODES:
        measured[mode] = measure(mode)
        print(json.dumps({"mode": mode, **measured[mode]}), flush=True)
        Path(path).write_text(table(measured))


if __name__ == "__main__":
    main(sys.argv[1], tuple(sys.argv[2:]))
