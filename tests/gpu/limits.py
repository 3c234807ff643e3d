"""``python -m gpu.limits [KIND...]`` from tests/: ``limited_by`` against PyTorch's profiler.

Runs each training of ``limited.py`` under a daemon. Prints the verdicts that ``/status`` gave while
it was steady, and the truth; exit 1 if the verdict in the end is another than expected. ``--raw``
adds what NVML's GPM measured, averaged.
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
# GPM: see NVML_GPM_METRIC_*
RAW = {
    "graphics": 1,
    "sm": 2,
    "occupancy": 3,
    "integer": 4,
    "tensor": 5,
    "dram": 10,
    "fp32": 12,
    "fp16": 13,
    "pcie_tx": 20,
    "pcie_rx": 21,
    "nvlink_rx": 60,
    "nvlink_tx": 62,
}


def main(names: list[str]) -> int:
    """Run those named, else all that this machine has the GPUs for."""
    raw = "--raw" in names
    chosen = [name for name in names if not name.startswith("-")]
    gpus = int(
        subprocess.check_output(
            [sys.executable, "-c", "import torch; print(torch.cuda.device_count())"]
        )
    )
    wrong = 0
    for kind, expected in EXPECTED.items():
        if (chosen and kind not in chosen) or (kind in ON_TWO and gpus < 2):
            continue
        with tempfile.TemporaryDirectory() as place:
            wrong += _one(kind, expected, Path(place), raw=raw)
    return 1 if wrong else 0


def _one(kind: str, expected: tuple[str | None, ...], place: Path, *, raw: bool) -> int:
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
        sampler = Sampler() if raw else None
        errors: list[bytes] = []
        reader = threading.Thread(target=lambda: errors.append(training.stderr.read()))  # type: ignore[union-attr]
        reader.start()
        while training.poll() is None:
            with urllib.request.urlopen(f"{url}/status") as reply:
                looks.append(json.load(reply))
            if sampler:
                sampler.sample()
            time.sleep(0.5)
        reader.join()
    truths = [json.loads(one.read_text()) for one in sorted(place.glob("truth.*.json"))]
    if not truths:
        print(f"{kind:<16} FAILED {errors[0].decode()[-600:]}", flush=True)
        return int("No module named 'torchvision'" not in errors[0].decode())
    return _compared(kind, expected, looks, truths, sampler)


def _compared(
    kind: str,
    expected: tuple[str | None, ...],
    looks: list[dict[str, Any]],
    truths: list[dict[str, Any]],
    sampler: Sampler | None,
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
    if sampler:
        print(f"    gpm: {sampler.means(first['began'] + 4, first['ended'])}", flush=True)
    return int(not right)


def _mean(values: list[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return round(sum(known) / len(known), 3) if known else None


class Sampler:
    """GPM's metrics of each GPU between two samples."""

    def __init__(self) -> None:
        import pynvml

        self._nvml = pynvml
        pynvml.nvmlInit()
        self._handles = [
            pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())
        ]
        self._samples = [
            [pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()] for _ in self._handles
        ]
        for handle, (first, _) in zip(self._handles, self._samples, strict=True):
            pynvml.nvmlGpmSampleGet(handle, first)
        self._seen: list[tuple[float, int, dict[str, float]]] = []

    def sample(self) -> None:
        """Each GPU since the last call."""
        nvml = self._nvml
        for index, handle in enumerate(self._handles):
            before, fresh = self._samples[index]
            nvml.nvmlGpmSampleGet(handle, fresh)
            request = nvml.c_nvmlGpmMetricsGet_t()
            request.version, request.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, len(RAW)
            request.sample1, request.sample2 = before, fresh
            for place, metric in enumerate(RAW.values()):
                request.metrics[place].metricId = metric
            answer = nvml.nvmlGpmMetricsGet(request)
            values = {
                name: answer.metrics[place].value
                for place, name in enumerate(RAW)
                if not answer.metrics[place].nvmlReturn
            }
            try:
                since = int((time.time() - 2) * 1e6)
                for one in nvml.nvmlDeviceGetProcessUtilization(handle, since):
                    values[f"pid{one.pid}.sm"] = one.smUtil
            except nvml.NVMLError as error:
                values[f"processes: {error}"] = 0.0
            listed = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
            values["listed"] = len(listed)
            self._seen.append((time.time(), index, values))
            self._samples[index] = [fresh, before]

    def means(self, began: float, ended: float) -> dict[int, dict[str, float]]:
        """By GPU, of the samples in that time."""
        found = {}
        for index in range(len(self._handles)):
            seen = [one for at, i, one in self._seen if i == index and began <= at <= ended]
            names = {name for one in seen for name in one}
            found[index] = {
                name: _mean([one.get(name) for one in seen]) or 0.0 for name in sorted(names)
            }
        return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
