"""``python -m gpu.drift [MODE...]`` from tests/: losses and peak memory in ``warmwatch modes``.

The script prints each of its losses, scaled by a ``GradScaler``, and CUDA's own peak of allocated
memory. Prints one line for each figure; exit 1 if the table differs from what the script printed.
A second script, which never looks at a loss, shows what recording costs: with and without
``WARMWATCH_LOSSES``, the CPU's and the GPU's time of a step, and whether a step synchronizes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

MODES = ("default", "reduce-overhead", "regional")
STEPS = 60
WARMWATCH = (sys.executable, "-m", "warmwatch_monitor")

TRAINING = """
import torch
from torch import nn

torch.manual_seed(0)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(256), nn.Linear(256, 512), nn.Linear(512, 256)
    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.head = nn.ModuleList(Block() for _ in range(4)), nn.Linear(256, 16)
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
compiled = torch.compile(model)
target = torch.randint(0, 16, (512,), device="cuda")
x = torch.randn(512, 256, device="cuda")

def step():
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(compiled(x), target)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    return loss
"""

PRINTING = (
    TRAINING
    + """
for _ in range(10**9):
    print(repr(step().item()), torch.cuda.max_memory_allocated(), flush=True)
"""
)

# The CPU runs ahead of the GPU unless something synchronizes; GradScaler.step does, so it is
# left out.
AHEAD = TRAINING.replace("scaler.scale(loss).backward()", "loss.backward()").replace(
    "scaler.step(optimizer)\n    scaler.update()", "optimizer.step()"
) + (
    """
import json, time
for _ in range(30):
    step()
torch.cuda.synchronize()
begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
torch.cuda.set_sync_debug_mode("error")
torch.cuda._sleep(10**9)  # the GPU is busy: a step that synchronizes waits for it
begin.record()
began = time.perf_counter()
for _ in range(100):
    step()
cpu = time.perf_counter() - began
end.record()
torch.cuda.set_sync_debug_mode("default")
torch.cuda.synchronize()
print(json.dumps({"cpu_ms": cpu * 10, "gpu_ms": begin.elapsed_time(end) / 100,
    "peak_bytes": torch.cuda.max_memory_allocated()}))
"""
)


def main(modes: tuple[str, ...]) -> int:
    """All figures; 1 if one is wrong."""
    with tempfile.TemporaryDirectory() as place:
        environ = {**os.environ, "WARMWATCH_DIR": f"{place}/records", "WARMWATCH_STATE": "off"}
        return max(_table(Path(place), environ, modes), _cost(Path(place), environ))


def _table(place: Path, environ: dict[str, str], modes: tuple[str, ...]) -> int:
    script = place / "printing.py"
    script.write_text(PRINTING)
    output = place / "out"
    chosen = [word for mode in ("eager", *modes) for word in ("--mode", mode)]
    command = [
        *WARMWATCH,
        "modes",
        "--json",
        "--rounds",
        "2",
        "--steps",
        str(STEPS),
        "--output",
        str(output),
    ]
    done = subprocess.run(
        [*command, *chosen, "--", sys.executable, str(script)],
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    table = json.loads(done.stdout)
    eager, _ = _printed(output / "eager.log")
    again, _ = _printed(output / "eager-2.log")
    wrong = 0
    for row in table["rows"]:
        losses, peak = _printed(output / f"{row['mode']}.log")
        wrong += _line(f"{row['mode']}: peak memory", row["peak_memory_bytes"], peak, off=0.01)
        if row["mode"] == "eager":
            continue
        drift: dict[str, Any] = row["drift"] or {}
        passes = drift.get("passes", 0)
        # the pass that the script did not print lowers eager's mean loss
        printed = _drift(losses, eager, passes)
        wrong += _line(f"{row['mode']}: drift", drift.get("relative"), printed, off=0.01)
        noise = _drift(again, eager, drift.get("noise_passes", 0))
        wrong += _line(f"{row['mode']}: noise", drift.get("noise"), noise)
    return 1 if wrong else 0


def _printed(log: Path) -> tuple[list[float], int | None]:
    """The losses, and the peak that was printed last."""
    pairs = [line.split() for line in log.read_text().splitlines() if line[:1].isdigit()]
    known = [pair for pair in pairs if len(pair) == 2]
    return [float(loss) for loss, _ in known], int(known[-1][1]) if known else None


def _drift(losses: list[float], eager: list[float], passes: int) -> float | None:
    """Over the passes that were compared; the script may end between its last one and its print."""
    pairs = list(zip(losses, eager, strict=False))[:passes]
    if not passes or len(pairs) < passes - 1:
        return None
    passes = len(pairs)
    return max(abs(a - b) for a, b in pairs) / (sum(abs(b) for _, b in pairs) / passes)


def _line(name: str, found: float | None, truth: float | None, off: float = 1e-9) -> int:
    """Print a figure and the truth; 1 if they differ by more than ``off`` of it."""
    close = found is not None and truth is not None and abs(found - truth) <= off * abs(truth)
    print(f"{'equal' if close else 'WRONG'}  {name}: {found}, should be {truth}", flush=True)
    return 0 if close else 1


def _cost(place: Path, environ: dict[str, str]) -> int:
    script = place / "ahead.py"
    script.write_text(AHEAD)
    status = 0
    for recorded in (False, True, False, True):
        variables = {"WARMWATCH_LOSSES": tempfile.mkdtemp(dir=place)} if recorded else {}
        done = subprocess.run(
            [*WARMWATCH, "run", "--", sys.executable, str(script)],
            env={**environ, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        shown = done.stdout.splitlines()[-1:] or done.stderr[-2000:]
        print(f"losses {'recorded' if recorded else 'not recorded'}: {shown}", flush=True)
        status = max(status, int(done.returncode != 0))
    return status


if __name__ == "__main__":
    raise SystemExit(main(tuple(sys.argv[1:]) or MODES))
