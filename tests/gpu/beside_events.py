"""``python -m gpu.beside_events [MODE...]`` from tests/: Warmwatch's figures and CUDA events.

``warmwatch modes`` runs ``by_hand.py``, which times each of its own steps with CUDA events; in the
default mode it runs without Warmwatch too; then it tells what a step is worth, and MFU is held
against a calculation by hand. Prints a line a figure; exit 1 where one is off by more than 2 %.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import gpt, served

SCRIPT = Path(__file__).with_name("by_hand.py")
MODES = ("eager", "default", "reduce-overhead", "max-autotune")
WARMWATCH = (sys.executable, "-m", "warmwatch_monitor")
ALIKE = 0.02
ALONE_STEPS = 200
PEAK = 989.4e12  # dense bfloat16 operations a second of an H100 or H200 SXM, by its data sheet


def main(modes: tuple[str, ...]) -> int:
    """Each part, and how many figures were off."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        environ = {
            **os.environ,
            "WARMWATCH_DIR": f"{place}/records",
            "WARMWATCH_STATE": f"{place}/state",
        }
        with served.daemon(environ) as daemon:
            wrong = _each_mode(folder, environ, modes)
            wrong += _worth(folder, environ, daemon)
        for one in (["runs"], ["report", "by_hand/default"], ["status", "--functions"]):
            subprocess.run([*WARMWATCH, *one], env=environ, check=False)
    return 1 if wrong else 0


def _each_mode(folder: Path, environ: dict[str, str], modes: tuple[str, ...]) -> int:
    """The table of modes compared with what the script measured, with and without the agent."""
    chosen = [word for mode in modes for word in ("--mode", mode)]
    command = [*WARMWATCH, "modes", "--json", "--rounds", "1", *chosen, "--"]
    finished = subprocess.run(
        [*command, sys.executable, str(SCRIPT), str(folder / "seen")],
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    print(finished.stdout, flush=True)
    wrong = 0
    for row in json.loads(finished.stdout)["rows"]:
        mode, seen = row["mode"], _read(folder / f"seen.{row['mode']}.json")
        alone = _alone(folder, mode) if mode == "default" else {}
        step = row["mean_seconds"]
        wrong += _compare(f"{mode}: step", step, seen["step"], "events")
        if alone:
            wrong += _compare(f"{mode}: step", step, alone["step"], "without Warmwatch")
        if mode != "eager":
            _compare(f"{mode}: first step", row["first_step_seconds"], seen["first_step"], "clock")
        peak = row["peak_memory_bytes"]
        wrong += _compare(f"{mode}: peak memory", peak, seen["memory"], "allocator")
        first = row["first_step_memory_bytes"]
        _compare(f"{mode}: first step's memory", first, seen["first_memory"], "allocator")
    return wrong


def _alone(folder: Path, mode: str) -> dict[str, Any]:
    """Run the same script without Warmwatch."""
    command = [sys.executable, str(SCRIPT), str(folder / "alone"), "--mode", mode]
    subprocess.run([*command, "--steps", str(ALONE_STEPS)], stdout=subprocess.DEVNULL, check=True)
    return _read(folder / f"alone.{mode}.json")


def _worth(folder: Path, environ: dict[str, str], daemon: served.Daemon) -> int:
    """MFU and tokens a second of clean steps compared with a calculation by hand."""
    command = [sys.executable, str(SCRIPT), str(folder / "worth"), "--tokens", "--steps", "400"]
    environ = {**environ, "WARMWATCH_RUN": "worth"}
    subprocess.run(command, env=environ, stdout=subprocess.DEVNULL, check=True)
    seen = _read(folder / "worth.default.json")
    rank = served.at_rest(daemon, "worth")["runs"][0]["ranks"][0]
    print(json.dumps({key: rank.get(key) for key in ("worth", "step_seconds", "energy")}))
    tokens = gpt.BATCH * gpt.CONTEXT
    worth = rank["worth"]
    mfu = 6 * seen["parameters"] * tokens / seen["step"] / PEAK
    wrong = _compare("MFU", worth.get("mfu_ratio"), mfu, "6N a token by hand")
    rate = worth.get("tokens_per_second")
    return wrong + _compare("tokens a second", rate, tokens / seen["step"], "events")


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


def _compare(what: str, ours: float | None, theirs: float, whose: str) -> int:
    off = None if ours is None else ours / theirs - 1
    agree = off is not None and abs(off) <= ALIKE
    value = "unknown" if ours is None else f"{ours:.5g}"
    by = "" if off is None else f" ({off:+.2%})"
    print(
        f"{what:<32} {'ok' if agree else 'OFF':<4} ours {value} {whose} {theirs:.5g}{by}",
        flush=True,
    )
    return not agree


if __name__ == "__main__":
    sys.exit(main(tuple(sys.argv[1:]) or MODES))
