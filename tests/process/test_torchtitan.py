"""torchtitan's own trainer, with a tiny model (``make test-frameworks`` installs it).

It trains on accelerators alone: here PyTorch's CPU is given the few functions of one that it lacks
(``CPU``). All else is torchtitan's and PyTorch's own: gloo, FSDP, compiled blocks, the distributed
checkpoint. The truth is the trainer's own count of steps and tokens, and PyTorch's metrics.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from support import slots
from support.trainings import PRELUDE, environment, result_of

pytestmark = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("torchtitan", "triton")),
    reason="torchtitan, or Triton, which it imports, not installed: make test-frameworks",
)

CPU = """
import os
from dataclasses import dataclass
from types import SimpleNamespace
import torch.distributed
torch._utils._get_available_device_type = lambda: "cpu"
torch.cpu.current_device = lambda: 0
torch.cpu.get_device_name = lambda device=None: "CPU"
torch.cpu.get_device_properties = lambda device=None: SimpleNamespace(total_memory=1)
torch.cpu.memory_stats = lambda device=None: {}
torch.cpu.reset_peak_memory_stats = torch.cpu.empty_cache = lambda: None
if not hasattr(torch.distributed, "set_timeout"):  # PyTorch 2.13 has it by its older name
    torch.distributed.set_timeout = torch.distributed.distributed_c10d._set_pg_timeout
"""

CONFIG = """
from torchtitan.components.checkpointer import CheckpointManager
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.components.metrics import MetricsProcessor
from torchtitan.components.optimizer import default_adamw
from torchtitan.components.tokenizer import BaseTokenizer
from torchtitan.components.validate import Validator
from torchtitan.config import CompileConfig, DebugConfig, ParallelismConfig, TrainingConfig
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.models.llama3 import model_registry
from torchtitan.trainer import Trainer

class Tokens(BaseDataLoader):
    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        infinite: bool = True
    def __init__(self, config, *, seq_len, local_batch_size, **_):
        self.shape = local_batch_size, seq_len
    def __iter__(self):
        generator = torch.Generator().manual_seed(1)
        while True:
            tokens = torch.randint(64, self.shape, generator=generator)
            yield {"input": tokens, "positions": torch.arange(16).expand(self.shape)}, tokens
    def state_dict(self): return {}
    def load_state_dict(self, state): pass

class NoTokenizer(BaseTokenizer):
    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass
    def __init__(self, config, **_): pass
    def encode(self, *_, **__): return []
    def decode(self, *_, **__): return ""
    def get_vocab_size(self): return 64

def tiny(folder="out", steps=4, ranks=int(os.environ.get("WORLD_SIZE", 1))):
    spec = model_registry("debugmodel")
    spec.model.layers = spec.model.layers[:1]
    for layer in spec.model.layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    return Trainer.Config(
        model_spec=spec, dump_folder=folder, hf_assets_path=".", tokenizer=NoTokenizer.Config(),
        dataloader=Tokens.Config(), loss=CrossEntropyLoss.Config(),
        optimizer=default_adamw(lr=1e-3), activation_checkpoint=None,
        training=TrainingConfig(local_batch_size=2, global_batch_size=4, seq_len=16, steps=steps,
            mixed_precision_param="float32", disable_cuda_graphs=True),
        checkpoint=CheckpointManager.Config(enable=True, interval=3, last_save_model_only=False),
        validator=Validator.Config(enable=True, freq=3, steps=2, dataloader=Tokens.Config()),
        parallelism=ParallelismConfig(spmd_backend="partial_dtensor", tensor_parallel_degree=ranks),
        compile=CompileConfig(enable=True, components=["model"], backend="eager"),
        metrics=MetricsProcessor.Config(log_freq=1), debug=DebugConfig(seed=0),
    )
"""

WATCHED = (
    CPU
    + """
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1",
    MASTER_PORT="0")
"""
    + CONFIG
    + """
from torch._dynamo.utils import clear_compilation_metrics, get_compilation_metrics
from warmwatch.frameworks.torchtitan import watch
def trained(folder, steps, begin):
    torch._dynamo.reset()
    trainer = tiny(folder, steps).build()
    begin(trainer)
    trainer.train()
    trainer.close()
    return trainer
def weights(trainer):
    return [p.full_tensor().double().sum().item() for p in trainer.model_parts[0].parameters()]
plain = trained("plain", 4, lambda trainer: None)
clear_compilation_metrics()
def begin(trainer):
    watch(trainer)
    watch(trainer)  # as where `warmwatch run` does it too
one = trained("watched", 4, begin)
compiled = sum(not m.is_runtime for m in get_compilation_metrics())
two = trained("watched", 6, watch)  # which resumes where that ended
compiled = sum(not m.is_runtime for m in get_compilation_metrics())
flops = two.metrics_processor.num_flops_per_token
result([two.step, two.ntokens_seen, flops, compiled, weights(plain) == weights(one)])
"""
)


def test_a_trainer_reports_its_steps_validations_saves_and_tokens(records: Path) -> None:
    steps, tokens, flops, compilations, same = result_of(records, WATCHED, attach=False)
    slot = slots.read(slots.only(records))
    counts = slot.compile
    assert slot.identity.run == "llama3_debugmodel"
    # to load the checkpoint stepped the optimizer once more
    assert (slot.steps.steps, slot.tokens) == (steps, tokens) == (6, 6 * 4 * 16)
    assert slot.identity.flops_per_step == flops * 4 * 16
    assert slot.identity.parameters_seen
    assert counts.evaluations == 3  # after the steps 1, 3 and 6
    assert counts.evaluating_since_ns == counts.saving_since_ns == 0
    assert counts.evaluating_ns > 0
    assert counts.saving_ns > 0
    assert sum(counts.compilations[:2]) == compilations > 0
    assert same


def test_warmwatch_run_watches_each_trainer_without_an_edit(records: Path) -> None:
    """Two ranks, by torchtitan's own ``main``: each reports its share of the step."""
    script, module = records.parent / "train.py", records.parent / "tiny.py"
    module.write_text("import os, torch\nfrom dataclasses import dataclass\n" + CONFIG)
    script.write_text(f"{PRELUDE}{CPU}from torchtitan.train import main\nmain()\n")
    options = ("--module=tiny", "--config=tiny", "--training.steps=3")
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script))
    done = subprocess.run(
        [sys.executable, "-m", "warmwatch_monitor", "run", "--", sys.executable, *launch, *options],
        env=environment(records),
        cwd=records.parent,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = [slots.read(one) for one in slots.folders(records)]
    known = sorted((one.identity.rank, one.steps.steps, one.tokens) for one in found)
    assert known == [(0, 3, 3 * 2 * 16), (1, 3, 3 * 2 * 16)]
    assert {one.identity.run for one in found} == {"llama3_debugmodel"}
    assert {one.compile.evaluations for one in found} == {2}
