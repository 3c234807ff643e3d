"""The arguments of torch.compile, from the objects that it passes on: stand-ins for PyTorch's."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from support.ranks import Rank
from warmwatch.hooks.dynamo.compile_calls import methods_of, way_of
from warmwatch.shared.user_code import of_value

MODES = {
    "default": {},
    "reduce-overhead": {"triton.cudagraphs": True},
    "max-autotune": {"max_autotune": True, "triton.cudagraphs": True},
}


@pytest.fixture(autouse=True)
def _inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    modes = SimpleNamespace(list_mode_options=lambda: MODES)
    monkeypatch.setitem(sys.modules, "torch._inductor", modes)  # type: ignore[arg-type]


def inductor(**config: Any) -> Any:
    return SimpleNamespace(compiler_name="inductor", config=config)


def requested(backend: object, **more: Any) -> tuple[str, str, list[str]]:
    way = way_of((), {"backend": backend, **more})
    return way["backend"], way["mode"], way["options"]


def test_a_mode_is_recognized_by_its_options() -> None:
    for mode, sets in MODES.items():
        assert requested(inductor(**sets)) == ("inductor", mode, [])


def test_options_are_names_and_short_hashes() -> None:
    options = [f"max_autotune={of_value(True)}", f"shape_padding={of_value('patient 7')}"]
    assert requested(inductor(shape_padding="patient 7", max_autotune=True)) == (
        *("inductor", "default"),
        options,
    )
    assert "patient" not in str(options)


def test_another_backends_mode_and_options_are_reported_if_they_look_like_names() -> None:
    given = {"mode": "fast", "options": {"level": 3, "a key of mine": 1}}
    mine = SimpleNamespace(compiler_name="mine", kwargs=given)
    level, hidden = f"level={of_value(3)}", f"...={of_value(1)}"
    assert requested(mine) == ("mine", "fast", [hidden, level])
    odd = SimpleNamespace(compiler_name="<function at 0x7f>", kwargs={"mode": ["x"]})
    assert requested(odd) == ("...", "...", [])


def test_torch_dynamo_optimize_accepts_a_name_or_a_function() -> None:
    def own(graph: object, inputs: object) -> None: ...

    assert [way_of((one,), {})["backend"] for one in ("eager", own, lambda g: g, 7)] == [
        *("eager", "own", "...", "..."),
    ]
    assert way_of((), {})["backend"] == "inductor"


def test_a_missing_value_is_unknown() -> None:
    assert way_of((inductor(),), {}) | {"options": 0} == {
        "mode": "default",
        "backend": "inductor",
        "options": 0,
        "dynamic": None,
        "fullgraph": False,
    }
    found = way_of((inductor(),), {"dynamic": False, "nopython": True})
    assert (found["dynamic"], found["fullgraph"]) == (False, True)


def test_only_the_first_of_many_options_are_reported() -> None:
    _, _, options = requested(inductor(**{f"o{number:03}": number for number in range(500)}))
    assert len(options) == 50


def test_a_method_that_calls_torch_compile_itself_is_none_that_a_step_calls() -> None:
    from torch.nn import Module

    class Loaded(Module):
        def generate(self) -> None: ...

        def load(self) -> dict[str, Any]:
            return methods_of(self, sys._getframe())

    assert Loaded().load() == {"methods": ["generate"]}
    assert methods_of(Loaded(), None) == {"methods": ["generate", "load"]}
    in_place = Loaded()._call_impl  # what Module.compile() passes on
    assert methods_of(in_place, None) == {"methods": ["generate", "load", "forward"]}
    assert methods_of(Loaded().generate, None) == {}


def test_each_compile_call_is_listed_once_and_the_list_is_bounded() -> None:
    rank = Rank()
    for mode in ("default", "max-autotune", "default"):
        rank.ledger.post("wrapped", {"mode": mode, "trains": False})
    assert rank.store.notes == []  # there is no record yet
    rank.ledger.post("opened", {"graphs": 0})
    listed = [values["mode"] for event, _, values in rank.store.notes if event == "wrapped"]
    assert listed == ["default", "max-autotune"]
    for number in range(50):
        rank.ledger.post("wrapped", {"mode": str(number), "trains": False})
    assert len(rank.store.notes) == 20
    assert rank.slot().compile.wrappers == 53
