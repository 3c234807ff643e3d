"""Parameters and steps of a model that is really sharded over several ranks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support import slots
from support.torch_versions import VERSION
from support.trainings import environment

SHARDED = """
import os
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn import Embedding, Linear, Module
import warmwatch

class Model(Module):
    def __init__(self):
        super().__init__()
        self.into, self.body = Embedding(37, 16), Linear(16, 16)
        self.out = Linear(16, 37, bias=False)
        self.out.weight = self.into.weight  # tied
    def forward(self, x):
        return self.out(self.body(self.into(x)))

def fsdp2(model):
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    return model, torch.optim.AdamW(model.parameters())
def fsdp1(model, **options):
    model = FullyShardedDataParallel(model, device_id=torch.device("cpu"), **options)
    return model, torch.optim.AdamW(model.parameters())
def fsdp1_original(model):
    return fsdp1(model, use_orig_params=True)
def zero(model):
    model = torch.nn.parallel.DistributedDataParallel(model)
    return model, ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW)

dist.init_process_group("gloo")
needs_gpu = torch.__version__.startswith("2.6.")  # of FSDP2
for kind in (*(() if needs_gpu else (fsdp2,)), fsdp1, fsdp1_original, zero):
    warmwatch.attach(run=kind.__name__)
    model, optimizer = kind(Model())
    for _ in range(3):
        model(torch.randint(37, (4, 5))).square().mean().backward()
        optimizer.step(); optimizer.zero_grad()
    warmwatch.detach()
dist.destroy_process_group()
os._exit(0)  # gloo's threads may abort a process that ends with work of theirs in its hands
"""
WHOLE = 37 * 16 + 16 * 16 + 16


@pytest.mark.long
def test_each_rank_reports_the_parameters_of_the_whole_model_or_nothing(
    records: Path,
) -> None:
    """FSDP1's parameters tell the size of this rank's part alone."""
    script = records.parent / "train.py"
    script.write_text(SHARDED)
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    done = subprocess.run(
        [*torchrun, str(script)],
        env=environment(records),
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = [slots.read(one) for one in slots.folders(records)]
    known = {(one.identity.run, one.identity.rank): one.identity.parameters_seen for one in found}
    sizes = {"fsdp1": None, "fsdp1_original": None, "zero": WHOLE}
    if VERSION != "2.6":
        sizes["fsdp2"] = WHOLE
    assert known == {(kind, rank): size for kind, size in sizes.items() for rank in (0, 1)}
    assert {one.steps.steps for one in found} == {3}
