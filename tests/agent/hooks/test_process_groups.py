"""The hook of ``init_process_group()``."""

from __future__ import annotations

from typing import Any

import pytest

from warmwatch.hooks.training import process_groups


def test_the_call_is_the_users_and_an_error_of_the_agent_does_not_reach_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch.distributed as dist

    calls = list[Any]()

    def original(*args: Any, **kwargs: Any) -> str:
        calls.append((args, kwargs))
        if kwargs:
            raise ValueError("of the user")
        return "made"

    def joins() -> None:
        calls.append("joins")
        raise RuntimeError("of the agent")

    modules = (dist, dist.distributed_c10d, dist.device_mesh)
    for module in modules:
        monkeypatch.setattr(module, "init_process_group", original)
    leave = process_groups.install(joins)
    ours = dist.init_process_group
    assert ours("gloo") == "made"  # type: ignore[func-returns-value]
    assert calls == ["joins", (("gloo",), {}), "joins"]
    with pytest.raises(ValueError, match="of the user"):
        ours(rank=3)
    leave()
    assert {module.init_process_group for module in modules} == {original}
    calls.clear()
    ours("gloo")  # as a name that a program imported before
    assert calls == [(("gloo",), {})]
