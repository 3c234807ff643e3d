"""The frameworks' own callbacks, with the real libraries (`make test-frameworks` installs them).

The truth is the framework's own count of steps, and PyTorch's own compilation metrics.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import warmwatch
from support import slots
from support.trainings import PRELUDE, environment, result_of

# Where `warmwatch run` puts itself in the training's way.
BOOT = Path(warmwatch.__file__).parent / "_boot"


def needs(*names: str) -> pytest.MarkDecorator:
    missing = [name for name in names if find_spec(name) is None]
    reason = f"{', '.join(missing)} not installed: make test-frameworks"
    return pytest.mark.skipif(bool(missing), reason=reason)


# Offline, and with nothing written that is not the test's.
QUIET = """
import os
os.environ.update(HF_HUB_OFFLINE="1", WANDB_DISABLED="true", DO_NOT_TRACK="1")
from torch._dynamo.utils import get_compilation_metrics
def compiled():
    return sum(not m.is_runtime for m in get_compilation_metrics())
"""

TRAINER = (
    QUIET
    + """
import torch.nn as nn
from transformers import Trainer, TrainingArguments
class Model(nn.Module):
    main_input_name = "x"
    def __init__(self):
        super().__init__(); self.net = make()
    def forward(self, x, labels=None):
        return {"loss": (self.net(x.float()) - labels).square().mean(), "logits": x}
data = [{"x": torch.arange(8), "labels": torch.ones(1)} for _ in range(16)]
args = TrainingArguments(
    "out", run_name="named", max_steps=6, per_device_train_batch_size=2,
    gradient_accumulation_steps=2, eval_strategy="steps", eval_steps=3, save_strategy="steps",
    save_steps=3, report_to="none", disable_tqdm=True, use_cpu=True, torch_compile=True,
    torch_compile_backend="eager", include_num_input_tokens_seen="all",
)
trainer = Trainer(Model(), args, train_dataset=data, eval_dataset=data, callbacks=CALLBACKS)
trainer.train()
result([trainer.state.global_step, trainer.state.num_input_tokens_seen, compiled()])
"""
)


@needs("transformers", "accelerate")
@pytest.mark.parametrize("edited", [True, False])
def test_a_trainer_reports_its_steps_evaluations_saves_and_tokens(
    records: Path, edited: bool
) -> None:
    """By one line of the user's; under ``warmwatch run`` by none."""
    line = "from warmwatch.frameworks.transformers import WarmwatchCallback\n" if edited else ""
    callbacks = "[WarmwatchCallback()]" if edited else "[]"
    path = environment(records)["PYTHONPATH"]
    env = {} if edited else {"PYTHONPATH": f"{BOOT}:{path}"}
    body = line + TRAINER.replace("CALLBACKS", callbacks)
    steps, tokens, compilations = result_of(records, body, attach=False, env=env)
    slot = slots.read(slots.only(records))
    counts = slot.compile
    assert slot.identity.run == "named"
    assert (slot.steps.steps, slot.tokens) == (steps, tokens) == (6, 6 * 2 * 2 * 8)
    assert counts.evaluations == 2
    assert counts.evaluating_since_ns == counts.saving_since_ns == 0
    assert counts.evaluating_ns > 0
    assert counts.saving_ns > 0
    assert sum(counts.compilations[:2]) == compilations > 0


LIGHTNING = (
    QUIET
    + """
import PACKAGE as L
from torch.utils.data import DataLoader
class Model(L.LightningModule):
    def __init__(self):
        super().__init__(); self.net = torch.compile(make(), backend="eager")
    def training_step(self, x): return self.net(x).square().mean()
    def validation_step(self, x): self.net(x)
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=.1)
data = DataLoader(torch.randn(16, 8), batch_size=2)
trainer = L.Trainer(max_epochs=2, accumulate_grad_batches=2, logger=False, accelerator="cpu",
    enable_progress_bar=False, enable_model_summary=False, callbacks=CALLBACKS)
trainer.fit(Model(), data, data)
result([trainer.global_step, len(trainer.callbacks), compiled()])
"""
)


@needs("lightning")
def test_a_lightning_trainer_reports_its_steps_and_evaluations(records: Path) -> None:
    body = "from warmwatch.frameworks.lightning import WarmwatchCallback\n" + LIGHTNING
    # twice, as where Lightning finds one by itself in addition to the user's
    body = body.replace("CALLBACKS", "[WarmwatchCallback(), WarmwatchCallback()]")
    body = body.replace("PACKAGE", "lightning.pytorch")
    steps, _, compilations = result_of(records, body, attach=False)
    slot = slots.read(slots.only(records))
    assert slot.steps.steps == steps == 8
    assert slot.compile.evaluations == 3  # the sanity check is one
    assert slot.compile.evaluating_since_ns == 0
    assert sum(slot.compile.compilations[:2]) == compilations > 0


@needs("pytorch_lightning")
def test_lightning_finds_the_callback_in_an_attached_process() -> None:
    from warmwatch.frameworks import pytorch_lightning

    assert pytorch_lightning.callbacks() == []  # this process is not
    hooks = {name for name in vars(pytorch_lightning.Hooks) if name.startswith("on_")}
    assert hooks <= set(dir(pytorch_lightning.pytorch.Callback))


FABRIC = (
    QUIET
    + """
from lightning.fabric import Fabric
from warmwatch.frameworks.lightning import FabricCallback
fabric = Fabric(accelerator="cpu", callbacks=[FabricCallback()]); fabric.launch()
net = make(); model, o = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=.1))
for epoch in range(2):
    for _ in range(4):
        fabric.backward(model(torch.randn(2, 8)).square().mean()); o.step(); o.zero_grad()
    fabric.call("on_validation_start"); model(torch.randn(2, 8)); fabric.call("on_validation_end")
result(None)
"""
)


@needs("lightning")
def test_a_fabric_loop_reports_its_steps_and_evaluations(
    records: Path,
) -> None:
    result_of(records, FABRIC, attach=False)
    slot = slots.read(slots.only(records))
    assert (slot.steps.steps, slot.compile.evaluations) == (8, 2)


ACCELERATE = (
    QUIET
    + """
from accelerate import Accelerator
from warmwatch.frameworks.accelerate import watch
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
watch(accelerator)
accelerator.init_trackers("named")
net = make(); model, o = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=.1))
taken = 0
for _ in range(8):
    with accelerator.accumulate(model):
        accelerator.backward(model(torch.randn(2, 8)).square().mean()); o.step(); o.zero_grad()
        taken += accelerator.sync_gradients
accelerator.save_state("state")
result(taken)
"""
)


@needs("accelerate")
def test_an_accelerate_loop_reports_its_steps_name_and_saves(records: Path) -> None:
    taken = result_of(records, ACCELERATE, attach=False)
    slot = slots.read(slots.only(records))
    assert slot.identity.run == "named"
    assert slot.steps.steps == taken == 4
    assert slot.compile.saving_ns > 0


@needs("accelerate")
def test_processes_of_accelerate_launch_are_ranks_and_the_launcher_is_not(records: Path) -> None:
    """Under ``warmwatch run``, by the elastic launcher, as for several GPUs; on CPUs, with gloo."""
    script = records.parent / "train.py"
    body = ACCELERATE.replace("from warmwatch.frameworks.accelerate import watch", "")
    script.write_text(
        PRELUDE + body.replace("watch(accelerator)", "").partition("accelerator.save")[0]
    )
    options = ("--multi_gpu", "--num_processes=2", "--num_machines=1", "--mixed_precision=no")
    launch = ("-m", "accelerate.commands.launch", *options, "--main_process_port=0", str(script))
    done = subprocess.run(
        [sys.executable, "-m", "warmwatch_monitor", "run", "--", sys.executable, *launch],
        env=environment(records, HF_HUB_OFFLINE="1"),
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = [slots.read(one) for one in slots.folders(records)]
    known = sorted((one.identity.rank, one.identity.world_size, one.steps.steps) for one in found)
    assert known == [(0, 2, 4), (1, 2, 4)]


def test_the_users_values_override_those_of_a_framework(records: Path) -> None:
    body = """
from warmwatch.lifecycle import api as _current
from warmwatch.frameworks._reporting import suggest
import warmwatch
warmwatch.attach(run="mine")
suggest(run="theirs", tokens_per_step=5)
warmwatch.step()
warmwatch.attach(tokens_per_step=7)
suggest(tokens_per_step=9)
warmwatch.step()
updates = []
_current.attached.agent.update = updates.append
for _ in range(3):
    suggest(samples_per_step=3)
result(updates)
"""
    reported = result_of(records, body)
    slot = slots.read(slots.only(records))
    assert (slot.identity.run, slot.tokens) == ("mine", 5 + 7)
    assert reported == [{"samples_per_step": 3}]  # what is so already is not written again


def test_a_framework_that_marks_its_steps_reports_it_before_any_optimizer_step(
    records: Path,
) -> None:
    body = """
import warmwatch
from warmwatch.frameworks._reporting import mark_steps_by_hand
net = make(); o = torch.optim.SGD(net.parameters(), lr=.1)
mark_steps_by_hand([o])
o.step()  # as where a checkpoint is loaded
for _ in range(2):
    train(net, o, 1)
    warmwatch.step()
result(sum(p.numel() for p in net.parameters()))
"""
    parameters = result_of(records, body)
    slot = slots.read(slots.only(records))
    assert (slot.steps.steps, slot.identity.parameters_seen) == (2, parameters)
