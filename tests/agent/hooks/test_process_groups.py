"""The hook of ``init_process_group()``."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from warmwatch.hooks.training import process_groups


def test_the_call_is_the_users_and_an_error_of_the_agent_does_not_reach_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch.distributed as dist

    calls = list[Any]()

    def original(*args: str, **kwargs: int) -> str:
        calls.append((args, kwargs))
        if kwargs:
            raise ValueError("of the user")
        return "made"

    def joins() -> None:
        calls.append("joins")
        raise RuntimeError("of the agent")

    monkeypatch.setattr(dist, "init_process_group", None)  # as before it is imported
    modules = (dist.distributed_c10d, dist.device_mesh)
    for module in modules:
        monkeypatch.setattr(module, "init_process_group", original)
    leave = process_groups.install(joins)
    ours = dist.distributed_c10d.init_process_group
    assert inspect.signature(ours) == inspect.signature(original)
    dist.init_process_group = ours
    assert ours("gloo") == "made"  # type: ignore[func-returns-value]
    assert calls == ["joins", (("gloo",), {}), "joins"]
    with pytest.raises(ValueError, match="of the user"):
        ours(rank=3)
    leave()
    assert {module.init_process_group for module in (dist, *modules)} == {original}
    calls.clear()
    ours("gloo")  # as a name that a program imported before
    assert calls == [(("gloo",), {})]


def test_dynamo_compiles_nothing_of_the_agent_where_a_compiled_function_initializes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch
    import torch.distributed as dist
    from torch._dynamo.utils import counters

    def original() -> None:
        torch._dynamo.graph_break()

    def frames() -> int:
        torch._dynamo.reset()
        counters.clear()
        torch.compile(lambda: dist.init_process_group(), backend="eager")()
        return int(counters["frames"]["total"])

    monkeypatch.setattr(dist.distributed_c10d, "init_process_group", original)
    monkeypatch.setattr(dist, "init_process_group", original)
    plain = frames()
    leave = process_groups.install(lambda: None)
    assert frames() == plain > 0
    leave()
