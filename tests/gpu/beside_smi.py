"""``python -m gpu.beside_smi`` from tests/: the daemon's GPU figures against
``nvidia-smi``.

Both are polled in the same seconds, first for an idle GPU and then for a busy one. They read the
driver a moment apart, so the medians are compared, within what a moment changes. Prints one line
for each figure; exits with 1 if any disagrees.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import served

SECONDS = 12
BUSY = """
import torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
torch.cuda.synchronize(); print("busy", flush=True)
while True:
    for _ in range(20): b = a @ a
    torch.cuda.synchronize()
"""
# nvidia-smi's name, its unit in ours, our key, what a moment may change: absolute and relative
FIGURES = (
    ("power.draw", 1.0, "power_watts", 10.0, 0.05),
    ("power.limit", 1.0, "power_limit_watts", 0.5, 0.0),
    ("memory.used", 2**20, "memory_used_bytes", 8 * 2**20, 0.01),
    ("memory.total", 2**20, "memory_total_bytes", 2 * 2**20, 0.0),
    ("utilization.gpu", 0.01, "utilization_ratio", 0.03, 0.0),
    ("temperature.gpu", 1.0, "temperature_celsius", 2.0, 0.0),
    ("clocks.sm", 1e6, "sm", 60e6, 0.02),
    ("clocks.mem", 1e6, "memory", 1e6, 0.0),
)

Seen = dict[str, list[tuple[float, float]]]


def main() -> int:
    """Idle, then busy."""
    with tempfile.TemporaryDirectory() as place:
        environ = {**os.environ, "WARMWATCH_DIR": place}
        with served.daemon(environ) as daemon:
            wrong = _compare("idle", _watch(daemon))
            busy = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE)
            try:
                assert busy.stdout
                busy.stdout.readline()
                time.sleep(3)  # until the driver's own averages have left the idle seconds behind
                wrong += _compare("busy", _watch(daemon))
            finally:
                busy.kill()
    return 1 if wrong else 0


def _watch(daemon: served.Daemon) -> Seen:
    """Pairs of both answers, for each figure of each GPU that both know."""
    seen: Seen = {}
    for _ in range(SECONDS):
        time.sleep(1)
        smi, ours = _smi(), {gpu["uuid"]: gpu for gpu in _gpus(daemon)}
        for uuid, theirs in smi.items():
            mine = {**ours[uuid], **ours[uuid]["clocks_hertz"]}
            for name, unit, key, *_ in FIGURES:
                if theirs[name] is not None:
                    pair = (mine[key], theirs[name] * unit)
                    seen.setdefault(f"{ours[uuid]['index']} {name}", []).append(pair)
    return seen


def _gpus(daemon: served.Daemon) -> list[dict[str, object]]:
    """The daemon's GPUs, once it has read them."""
    while not (gpus := json.loads(daemon.ask("/status"))["gpus"]):
        time.sleep(0.2)
    return list(gpus)


def _smi() -> dict[str, dict[str, float | None]]:
    names = [name for name, *_ in FIGURES]
    query = f"--query-gpu=uuid,{','.join(names)}"
    out = subprocess.check_output(["nvidia-smi", query, "--format=csv,noheader,nounits"], text=True)
    by_uuid = {}
    for line in out.splitlines():
        uuid, *values = (part.strip() for part in line.split(","))
        by_uuid["GPU-" + uuid.removeprefix("GPU-").lower()] = {
            name: _number(value) for name, value in zip(names, values, strict=True)
        }
    return by_uuid


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _compare(when: str, seen: Seen) -> int:
    wrong = 0
    for what, pairs in sorted(seen.items()):
        *_, absolute, relative = next(f for f in FIGURES if f[0] == what.partition(" ")[2])
        mine, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
        agree = abs(mine - theirs) <= max(absolute, relative * abs(theirs))
        wrong += not agree
        verdict = "ok" if agree else "WRONG"
        print(f"{when} GPU {what:<20} {verdict:<6} ours {mine:.5g} nvidia-smi {theirs:.5g}")
    sys.stdout.flush()
    return wrong


if __name__ == "__main__":
    sys.exit(main())
