"""IPython's cells: no step is expected between two cells. A stand-in replaces IPython's shell."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support import slots
from support.trainings import training
from warmwatch.hooks.training import notebook_cells

Heard = list[str]


class Events:
    """The used part of IPython's EventManager."""

    def __init__(self) -> None:
        self.callbacks: dict[str, list[Callable[[Any], None]]] = {}

    def register(self, name: str, callback: Callable[[Any], None]) -> None:
        self.callbacks.setdefault(name, []).append(callback)

    def unregister(self, name: str, callback: Callable[[Any], None]) -> None:
        self.callbacks[name].remove(callback)

    def trigger(self, *names: str) -> None:
        for name in names:
            for callback in self.callbacks.get(name, ()):
                callback(None)


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Events:
    events = Events()
    shell = SimpleNamespace(events=events)
    ipython = SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", ipython)  # type: ignore[arg-type]
    return events


def listening(heard: Heard) -> Any:
    cells = {"pause_began": "left", "pause_ended": "began"}
    return SimpleNamespace(post=lambda fact, _: heard.append(cells[fact]))


PRE, POST = "pre_run_cell", "post_run_cell"


def test_the_cell_that_installed_the_hook_ends_and_another_begins(events: Events) -> None:
    heard: Heard = []
    notebook_cells.install(listening(heard))
    events.trigger(POST, PRE, POST)
    assert heard == ["left", "began", "left"]


def test_without_a_shell_no_cell_is_reported_and_no_hook_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: Heard = []
    for ipython in (None, SimpleNamespace(get_ipython=lambda: None)):
        monkeypatch.setitem(sys.modules, "IPython", ipython)  # type: ignore[arg-type]
        notebook_cells.install(listening(heard)).uninstall()
    assert heard == []


TRAIN = """
import sys, types
events = {}
shell = types.SimpleNamespace(events=types.SimpleNamespace(
    register=lambda name, callback: events.setdefault(name, []).append(callback),
    unregister=lambda name, callback: events[name].remove(callback)))
sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: shell)
def run(*names):
    for name in names:
        for callback in events[name]: callback(None)
import warmwatch, torch._dynamo, time
warmwatch.attach()
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
train(model, o, 5)
run("post_run_cell"); gate("left")
time.sleep(1.5)
run("pre_run_cell"); train(model, o, 1); gate("trained")
run("post_run_cell"); warmwatch.detach(); assert not any(events.values())
"""


def test_the_time_between_two_cells_is_recorded_and_is_in_no_step(records: Path) -> None:
    with training(records, TRAIN, attach=False) as one:
        one.reach("left")
        during = slots.read(slots.only(records))
        one.go()
        one.reach("trained")
        after = slots.read(slots.only(records))
        one.go()
    assert during.compile.between_cells_since_ns >= during.steps.last_step_ns > 0
    assert after.compile.between_cells_since_ns == 0
    assert after.compile.between_cells_ns >= 1_500_000_000
    assert after.steps.steps == 6
    gap = after.steps.last_step_ns - during.steps.last_step_ns
    assert gap - after.compile.between_cells_ns >= after.steps.last_duration_ns
