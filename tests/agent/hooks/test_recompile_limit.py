"""The recompile limit in force and the main thread's, with a real PyTorch."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from support.torch_versions import TORCH, VERSION
from warmwatch.hooks.dynamo import compile_calls, events, fallbacks
from warmwatch.hooks.points import Fact, Listener

torch = pytest.importorskip("torch")


class Recorded(Listener):
    def __init__(self) -> None:
        self.limits: list[tuple[int, int | None]] = []

    def post(self, fact: Fact, values: Mapping[str, Any]) -> None:
        if fact == "fallback":
            self.limits.append((values["limit"], values.get("main_limit")))


@pytest.mark.skipif(
    VERSION == "2.11", reason="after a compilation in a thread that ended, a backward crashes"
)
def test_a_limit_that_only_the_main_thread_has_is_known_though_it_compiles_nothing() -> None:
    """Up to 2.11 all threads have the same settings, also one that the main thread changed since
    its last compilation."""
    torch._dynamo.reset()
    listener = Recorded()
    installed = [one.install(listener) for one in (events, fallbacks, compile_calls)]

    def called() -> None:
        for number in range(10):
            scaled(torch.ones(2), number=str(number))

    try:
        with torch._dynamo.config.patch({TORCH.limit: 5}):
            scaled = torch.compile(lambda x, number: x + len(number), backend="eager")
        with torch._dynamo.config.patch({TORCH.limit: 2}):
            thread = threading.Thread(target=called)
            thread.start()
            thread.join()
    finally:
        for one in installed:
            one.uninstall()
        torch._dynamo.reset()
    by_thread = tuple(map(int, VERSION.split("."))) >= (2, 12)
    assert listener.limits == [(8, 5) if by_thread else (2, None)]
