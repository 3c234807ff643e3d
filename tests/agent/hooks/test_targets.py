"""The names of compiled functions of PyTorch's own files."""

from __future__ import annotations

from typing import Any

from warmwatch.hooks.dynamo.targets import target


def test_a_wrapper_is_named_after_what_it_calls_and_else_by_itself() -> None:
    code = compile("def inner(): pass", "/lib/torch/_dynamo/external_utils.py", "exec").co_consts[0]

    def name(values: dict[str, Any]) -> Any:
        return target(code, values, "0/0", "torch._dynamo.external_utils")["name"]

    assert name({"fn": len}) == "len"
    assert name({"args": (), "kwargs": {}}) == "inner"  # that of `dont_skip_tracing`
