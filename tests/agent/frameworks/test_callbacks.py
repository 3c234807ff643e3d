"""Callbacks of frameworks, in the order in which they are called; without the libraries."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from support import slots
from support.trainings import result_of
from warmwatch.frameworks import _reporting
from warmwatch.frameworks._lightning_hooks import _name_of

OURS = "warmwatch.frameworks.transformers"


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What begins and ends, in order."""
    events: list[str] = []

    class Pause:
        def __init__(self, what: str) -> None:
            self.what = what

        def __enter__(self) -> None:
            events.append(f"{self.what} begins")

        def __exit__(self, *_: object) -> None:
            events.append(f"{self.what} ends")

    monkeypatch.setattr(_reporting, "Pause", Pause)
    monkeypatch.setattr("warmwatch.lifecycle.api.attach", lambda: None)
    return events


@pytest.fixture
def callback(monkeypatch: pytest.MonkeyPatch, events: list[str]) -> Any:
    library = ModuleType("transformers")
    library.trainer_callback = SimpleNamespace(TrainerCallback=object)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformers", library)
    monkeypatch.setitem(sys.modules, OURS, ModuleType(OURS))
    monkeypatch.delitem(sys.modules, OURS)
    return importlib.import_module(OURS).WarmwatchCallback()


STATE = SimpleNamespace(global_step=3, num_input_tokens_seen=0)
ARGS = SimpleNamespace(run_name=None, output_dir="out")
BOTH = SimpleNamespace(should_evaluate=True, should_save=True)


def test_every_data_set_is_evaluated_before_the_save(callback: Any, events: list[str]) -> None:
    callback.on_step_end(ARGS, STATE, BOTH)
    for _ in range(2):
        callback.on_prediction_step(ARGS, STATE, BOTH)
        callback.on_evaluate(ARGS, STATE, BOTH)
    callback.on_save(ARGS, STATE, BOTH)
    open_now: set[str] = set()
    for words in events:
        what, _, which = words.partition(" ")
        (open_now.add if which == "begins" else open_now.discard)(what)
        assert len(open_now) <= 1, events
    assert events.count("evaluating begins") == 2
    assert not open_now


def test_an_aborted_evaluation_ends_when_a_training_begins(
    callback: Any, events: list[str]
) -> None:
    callback.on_prediction_step(ARGS, STATE, BOTH)  # then an exception, which is not reported
    callback.on_train_begin(ARGS, STATE, BOTH)
    assert events == ["evaluating begins", "evaluating ends"]


# Reports of a torchtitan trainer, with a stand-in that has the attributes that are read


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


# Which name a run takes of Lightning's loggers: one that is the same in every rank


def logger(kind: str, name: str | None) -> object:
    made: object = type(kind, (), {"name": name})()
    return made


@pytest.mark.parametrize(
    ("world_size", "loggers", "named"),
    [
        (1, [("MLFlowLogger", "17")], "17"),
        (2, [("MLFlowLogger", "17")], None),
        (2, [("MLFlowLogger", "17"), ("CSVLogger", "gpt2")], "gpt2"),
        (2, [("TensorBoardLogger", "lightning_logs"), ("WandbLogger", "gpt2")], "gpt2"),
        (1, [("CSVLogger", None)], None),
        (1, [], None),
    ],
)
def test_ranks_use_no_name_that_may_differ_on_other_hosts(
    world_size: int, loggers: list[tuple[str, str | None]], named: str | None
) -> None:
    trainer = SimpleNamespace(
        world_size=world_size, loggers=[logger(kind, name) for kind, name in loggers]
    )
    assert _name_of(trainer) == named
