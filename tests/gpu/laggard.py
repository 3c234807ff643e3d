"""``python -m gpu.laggard`` from tests/: two ranks on two GPUs, one of which compiles more.

``torchrun`` and NCCL: rank 1 compiles a second model of its own, tuned at length, before its part
of the same step. Prints each summary of ``/status`` once. Exits with 1 unless the summaries
name rank 1 as the rank that the other waits for, and then how the ranks differ.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from support.daemon import daemon

SECONDS = 400
TRAIN = """
import os, time
import warmwatch.auto, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(2048, 4096), torch.nn.Linear(4096, 2048)
    def forward(self, x):
        return self.two(torch.nn.functional.gelu(self.one(x)))

model = DistributedDataParallel(Model().cuda(), device_ids=[rank])
optimizer = torch.optim.AdamW(model.parameters())
compiled = torch.compile(model)
for step in range(600):
    if rank == 1 and step == 20:
        other = torch.compile(Model().cuda(), mode="max-autotune-no-cudagraphs")
        other(torch.randn(512, 2048, device="cuda")).sum().backward()
    loss = compiled(torch.randn(4096, 2048, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.02)
dist.destroy_process_group()
"""


def main() -> int:
    """Watch it to its end."""
    with tempfile.TemporaryDirectory() as place:
        script, records = Path(place) / "laggard.py", Path(place) / "records"
        script.write_text(TRAIN)
        records.mkdir()
        launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
        env = {
            **os.environ,
            "WARMWATCH_DIR": str(records),
            "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        }
        with daemon(records) as url:
            training = subprocess.Popen([sys.executable, *launch, str(script)], env=env)
            try:
                summaries = _watch(url, training)
            finally:
                training.kill()
    named = any(
        re.search(r"compiling for .*rank 1 of 2; 1 rank waits for it", one) for one in summaries
    )
    apart = any("rank 1 also" in one for one in summaries)
    print(f"rank 1 named: {named}; ranks differ: {apart}; exit {training.returncode}")
    return 0 if named and apart and training.returncode == 0 else 1


def _watch(url: str, training: subprocess.Popen[bytes]) -> list[str]:
    """Each sentence once, whatever its figures."""
    summaries: dict[str, str] = {}
    until = time.monotonic() + SECONDS
    while training.poll() is None and time.monotonic() < until:
        with urllib.request.urlopen(f"{url}/status") as reply:
            sentence = str(json.load(reply)["summary"])
        kind = re.sub(r"[\d.]+", "#", sentence)
        if kind not in summaries:
            summaries[kind] = sentence
            print(sentence, flush=True)
        time.sleep(0.1)
    return list(summaries.values())


if __name__ == "__main__":
    sys.exit(main())
