"""The names of compiled functions of PyTorch's own files."""

from __future__ import annotations

from typing import Any

from warmwatch.hooks.dynamo.targets import target
from warmwatch.shared.phrases import place


def test_a_wrapper_is_named_after_what_it_calls_and_else_by_itself() -> None:
    code = compile("def inner(): pass", "/lib/torch/_dynamo/external_utils.py", "exec").co_consts[0]

    def words(values: dict[str, Any]) -> Any:
        of = target(code, values, "0/0", "torch._dynamo.external_utils")
        return place(of["name"], of.get("file"), of.get("line"))

    assert words({"fn": len}) == "`len`"
    assert words({"args": (), "kwargs": {}}) == "`inner`"  # that of `dont_skip_tracing`
