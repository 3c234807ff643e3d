"""Which name a run takes of Lightning's loggers: one that is the same in every rank."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from warmwatch.frameworks._lightning_hooks import _name_of


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
