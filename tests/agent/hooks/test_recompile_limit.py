"""The recompile limit in force and the main thread's, with a real PyTorch."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from support.torch_versions import TORCH, VERSION
from warmwatch.hooks.dynamo import compile_calls, events, fallbacks
from warmwatch.hooks.points import Fact, Listener

torch = pytest.importorskip("torch")


class Recorded(Listener):
    def __init__(self) -> None:
        self.limits: list[tuple[int, int | None]] = []
        self.shared: list[tuple[str, int, str]] = []

    def post(self, fact: Fact, values: Mapping[str, Any]) -> None:
        if fact == "fallback":
            self.limits.append((values["limit"], values.get("main_limit")))
            if "variants" in values:
                self.shared.append((values["name"], values["variants"], values["variants_of"]))


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    torch._dynamo.reset()
    listener = Recorded()
    installed = [one.install(listener) for one in (events, fallbacks, compile_calls)]
    yield listener
    for one in installed:
        one.uninstall()
    torch._dynamo.reset()


ACTIVATIONS = [torch.relu, torch.tanh, torch.sin, torch.cos]


def own(name: str) -> Any:
    return eval(f"lambda x: torch.{name}(x)", {"torch": torch})


def test_functions_that_one_wrapper_calls_share_a_limit_unless_each_has_its_own(
    recorded: Recorded,
) -> None:
    def called(functions: list[Any], **options: Any) -> list[Any]:
        torch._dynamo.reset()
        recorded.shared.clear()
        for function in functions:
            torch.compile(function, backend="eager", **options)(torch.ones(2))
        return recorded.shared

    with torch._dynamo.config.patch({TORCH.limit: 3}):
        assert called(ACTIVATIONS) == [("cos", 4, "functions")]
        assert not called([own(function.__name__) for function in ACTIVATIONS])
        if "isolate_recompiles" in inspect.signature(torch.compile).parameters:
            assert not called(ACTIVATIONS, isolate_recompiles=True)


@pytest.mark.skipif(
    VERSION == "2.11", reason="after a compilation in a thread that ended, a backward crashes"
)
def test_a_limit_that_only_the_main_thread_has_is_known_though_it_compiles_nothing(
    recorded: Recorded,
) -> None:
    """Up to 2.11 all threads have the same settings, also one that the main thread changed since
    its last compilation."""

    def called() -> None:
        for number in range(10):
            scaled(torch.ones(2), number=str(number))

    with torch._dynamo.config.patch({TORCH.limit: 5}):
        scaled = torch.compile(lambda x, number: x + len(number), backend="eager")
    with torch._dynamo.config.patch({TORCH.limit: 2}):
        thread = threading.Thread(target=called)
        thread.start()
        thread.join()
    by_thread = tuple(map(int, VERSION.split("."))) >= (2, 12)
    assert recorded.limits == [(8, 5) if by_thread else (2, None)]
