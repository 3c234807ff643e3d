"""``python -m gpu.own_gpus`` from tests/: the GPUs that the agent records, on real GPUs.

A training on one device, chosen in each form that CUDA_VISIBLE_DEVICES takes: the record must name
the device that ``nvidia-smi`` reports, and no context may exist on any other. Prints one line for
each form; exits with 1 if any is wrong.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from support import slots

TRAIN = """
import sys, warmwatch.auto, torch
device = torch.device("cuda", int(sys.argv[1]))
model = torch.nn.Linear(8, 8).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
compiled = torch.compile(model)
for _ in range(5):
    compiled(torch.ones(4, 8, device=device)).sum().backward()
    optimizer.step()
print("trained", flush=True)
sys.stdin.readline()
"""


def main() -> int:
    """All forms."""
    uuids = _smi("--query-gpu=uuid")
    last = len(uuids) - 1
    forms: list[tuple[str | None, int, str]] = [
        (None, 0, uuids[0]),
        (str(last), 0, uuids[last]),
        (uuids[last], 0, uuids[last]),
        (uuids[last][:12], 0, uuids[last]),
    ]
    if last:
        forms += [(None, last, uuids[last]), (f"{last},0", 0, uuids[last])]
        forms += [(f"{last},0", 1, uuids[0])]
    return 1 if sum(not _right(*form) for form in forms) else 0


def _right(visible: str | None, device: int, expected: str) -> bool:
    with tempfile.TemporaryDirectory() as place:
        env = {**os.environ, "WARMWATCH_DIR": place}
        env |= {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
        training = subprocess.Popen(
            [sys.executable, "-c", TRAIN, str(device)],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert training.stdout
        assert training.stdout.readline() == "trained\n"
        reported = slots.read(slots.only(Path(place))).identity.gpus
        held = set(_smi("--query-compute-apps=gpu_uuid"))
        training.communicate("\n")
    right = reported == (expected.lower().replace("gpu-", "GPU-"),) and held <= {expected}
    chosen = f"CUDA_VISIBLE_DEVICES={visible}" if visible else "all visible"
    print(f"{chosen}, device {device}: {'ok' if right else 'WRONG'} {reported}, contexts on {held}")
    return right


def _smi(query: str) -> list[str]:
    out = subprocess.check_output(["nvidia-smi", query, "--format=csv,noheader"], text=True)
    return [line.strip() for line in out.splitlines() if line.strip().startswith("GPU-")]


if __name__ == "__main__":
    sys.exit(main())
