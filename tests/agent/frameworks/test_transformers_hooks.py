"""What the ``Trainer``'s callback makes of the order in which it is called; without the library."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from warmwatch.frameworks import _reporting

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
