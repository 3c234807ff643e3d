"""Reports of a torchtitan trainer, with a stand-in that has the attributes that are read.

With the real library: tests/process/test_torchtitan.py.
"""

from __future__ import annotations

from pathlib import Path

from support import slots
from support.trainings import result_of

STAND_IN = """
from types import SimpleNamespace as Of
import warmwatch
from warmwatch.frameworks.torchtitan import watch
class Trainer:
    def __init__(self, quantized=False, **dims):
        net = make()
        self.optimizers = [torch.optim.SGD([p], lr=.1) for p in net.parameters()]
        self.config = Of(model_spec=Of(name="llama3", flavor="8B"))
        self.parallel_dims, self.ntokens_seen = Of(**{"tp": 1, "pp": 1, **dims}), 0
        self.metrics_processor = Of(num_flops_per_token=10, has_quantization=quantized)
        self.checkpointer = Of(_should_save=lambda step: step == 3, save=self.save)
        self.saves = []
    def train_step(self, batches):
        if not batches:
            raise EOFError
        self.ntokens_seen += batches.pop()
        for optimizer in self.optimizers:
            optimizer.step()
    def save(self, step):
        self.saves.append(_current.attached.agent.record.image().compile.saving_since_ns > 0)
    def train(self, batches):
        step = 0
        while True:
            step += 1
            try:
                self.train_step(batches)
            except EOFError:
                return
            self.checkpointer.save(step)
from warmwatch.lifecycle import api as _current
"""


def test_completed_train_steps_and_real_saves_are_counted(
    records: Path,
) -> None:
    body = f"{STAND_IN}trainer = Trainer(); watch(trainer); trainer.train([64] * 4)\n"
    saves = result_of(records, body + "result(trainer.saves)", attach=False)
    slot = slots.read(slots.only(records))
    assert (slot.steps.steps, slot.tokens, slot.identity.run) == (4, 4 * 64, "llama3_8B")
    assert slot.identity.flops_per_step == 640
    assert saves == [False, False, True, False]


def test_ranks_that_share_their_tokens_report_their_share(records: Path) -> None:
    body = f"{STAND_IN}trainer = Trainer(tp=2, pp=2, quantized=True); watch(trainer)\n"
    body += "trainer.train([64] * 3); result(None)"
    result_of(records, body, attach=False)
    slot = slots.read(slots.only(records))
    assert slot.tokens == 3 * 16
    assert slot.identity.flops_per_step is None


def test_a_named_launch_retains_its_name(records: Path) -> None:
    body = f"{STAND_IN}trainer = Trainer(); watch(trainer); trainer.train([64]); result(None)"
    result_of(records, body, attach=False, env={"TORCHELASTIC_RUN_ID": "mine"})
    assert slots.read(slots.only(records)).identity.run == "mine"
