"""The size of the model, from the parameters that its optimizers hold."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from warmwatch import _guard
from warmwatch.process.torch_state import Parameters


def sgd(*sizes: int) -> object:
    import torch  # here and below: by the worker that runs these, not by each that collects them

    return torch.optim.SGD([torch.nn.Parameter(torch.ones(size)) for size in sizes])


def counted(*optimizers: object, compiled: Iterable[int] = ()) -> int | None:
    parameters = Parameters()
    for optimizer in optimizers:
        parameters.add_optimizer(optimizer)
    for number in compiled:
        parameters.add_graph(number)
    return parameters.total


def test_parameters_of_all_optimizers_are_added_and_each_counts_once() -> None:
    first, second = sgd(3, 4), sgd(5)
    assert counted(first) == 7
    assert counted(first, second, first) == 12
    assert counted() is None


def test_a_count_below_that_of_the_compiled_graph_is_unknown() -> None:
    """With LoRA, the adapters alone are a hundredth of the model."""
    assert counted(sgd(10), compiled=[1000]) is None
    assert counted(sgd(10), compiled=[4, 10]) == 10  # compiled in parts


def test_a_sharded_parameter_makes_the_count_unknown() -> None:
    import torch

    class FlatParameter(torch.nn.Parameter):
        """As FSDP1 has them: this process's part."""

    assert counted(torch.optim.SGD([FlatParameter(torch.ones(3))])) is None


def test_an_unreadable_optimizer_is_a_counted_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported: list[str] = []
    monkeypatch.setattr(_guard, "_sink", lambda where, _error: reported.append(where))
    strange = type("Strange", (), {"param_groups": [{"params": [object()]}]})()
    assert counted(sgd(3), strange) is None
    assert reported == ["parameters"]
