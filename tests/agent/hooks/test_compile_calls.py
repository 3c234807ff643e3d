"""The arguments of torch.compile, from the objects that it passes on: stand-ins for PyTorch's."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from support.ranks import Rank
from warmwatch.hooks.dynamo.compile_calls import way_of
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
