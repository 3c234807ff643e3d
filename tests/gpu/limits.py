"""``python -m gpu.limits [KIND...]`` from tests/: ``limited_by`` against PyTorch's profiler.

Runs each training of ``limited.py`` under a daemon. Prints the verdicts that ``/status`` gave while
it was steady, and the truth; exit 1 if the verdict in the end is another than expected.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

from support.daemon import daemon

SECONDS = float(os.environ.get("SECONDS", "16"))
TRAINING = Path(__file__).with_name("limited.py")
# kind -> the verdicts that are right; None: no verdict
EXPECTED: dict[str, tuple[str | None, ...]] = {
    "compute": ("compute",),
    "memory": ("memory",),
    "host": ("host",),
    "host_eager": ("host",),
    "mlp_small": ("host",),
    "graphs": (None, "host"),
    "loader": ("input",),
    "hidden_loader": ("compute",),
    "saving": ("saving",),
    "evaluation": ("evaluation",),
    "idle_neighbour": ("compute", "throttled"),
    "shared": ("shared",),
    "gpt": ("compute", None),
    "resnet": ("compute", "memory", None),
    "communication": ("communication",),
    "laggard": ("communication",),
    "small": (None, "host"),
}
ON_TWO = ("communication", "laggard", "small")


def main(names: list[str]) -> int:
    """Run those named, else all that this machine has the GPUs for."""
    gpus = int(
        subprocess.check_output(
            [sys.executable, "-c", "import torch; print(torch.cuda.device_count())"]
        )
    )
    wrong = 0
    for kind, expected in EXPECTED.items():
        if (names and kind not in names) or (kind in ON_TWO and gpus < 2):
            continue
        with tempfile.TemporaryDirectory() as place:
            wrong += _one(kind, expected, Path(place))
    return 1 if wrong else 0


def _one(kind: str, expected: tuple[str | None, ...], place: Path) -> int:
    records, file = place / "records", place / "truth"
    records.mkdir()
    launch = [sys.executable]
    if kind in ON_TWO:
        launch += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    env = {**os.environ, "WARMWATCH_DIR": str(records), "WARMWATCH_RUN": kind}
    looks: list[dict[str, Any]] = []
    with daemon(records) as url:
        training = subprocess.Popen(
            [*launch, str(TRAINING), kind, str(file), str(SECONDS)],
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        errors: list[bytes] = []
        reader = threading.Thread(target=lambda: errors.append(training.stderr.read()))  # type: ignore[union-attr]
        reader.start()
        while training.poll() is None:
            with urllib.request.urlopen(f"{url}/status") as reply:
                looks.append(json.load(reply))
            time.sleep(0.5)
        reader.join()
    truths = [json.loads(one.read_text()) for one in sorted(place.glob("truth.*.json"))]
    if not truths:
        print(f"{kind:<16} FAILED {errors[0].decode()[-600:]}", flush=True)
        return int("No module named 'torchvision'" not in errors[0].decode())
    return _compared(kind, expected, looks, truths)


def _compared(
    kind: str,
    expected: tuple[str | None, ...],
    looks: list[dict[str, Any]],
    truths: list[dict[str, Any]],
) -> int:
    """Print what was seen in the steady part; 1 where the last verdict is not expected."""
    first = truths[0]
    steady = [one for one in looks if first["began"] + 4 <= one["at"] <= first["ended"]]
    ranks = [one["runs"][0]["ranks"][0] for one in steady if one["runs"]]
    verdicts = [(one.get("limited_by") or {}).get("verdict") for one in ranks]
    last = next((one for one in reversed(ranks)), {})
    right = bool(verdicts) and verdicts[-1] in expected
    print(
        f"{kind:<16} {'ok' if right else 'WRONG':<6} {dict(Counter(verdicts))}"
        f" last {json.dumps(last.get('limited_by'))}",
        flush=True,
    )
    for truth in truths:
        kernels = ", ".join(f"{name} {1e3 * one:.2f} ms" for name, one in truth["kernels"].items())
        print(
            f"    truth: step {1e3 * truth['step']:.2f} ms, kernels {kernels},"
            f" GPU busy {truth['busy']:.1%}",
            flush=True,
        )
    print(f"    sentence: {steady[-1]['summary'] if steady else None}", flush=True)
    keys = "utilization_ratio sm_active_ratio tensor_active_ratio dram_active_ratio power_watts"
    for gpu in steady[-1]["gpus"] if steady else ():
        same = [g for one in steady for g in one["gpus"] if g["uuid"] == gpu["uuid"]]
        means = {key: _mean([one.get(key) for one in same]) for key in keys.split()}
        print(
            f"    gpu {gpu['index']}: {means} limit {gpu['power_limit_watts']}"
            f" clocks {gpu['clocks_hertz']} throttled {gpu['throttled']}",
            flush=True,
        )
    cpu = _mean([(one.get("process") or {}).get("cpu_ratio") for one in ranks])
    print(f"    cpu {cpu}, batches {last.get('batches')}, pauses {last.get('pauses')}", flush=True)
    print(f"    worth {last.get('worth')}", flush=True)
    return int(not right)


def _mean(values: list[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return round(sum(known) / len(known), 3) if known else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
