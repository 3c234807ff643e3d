"""The figures of a compilation, from PyTorch's record of it."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from support.ranks import Rank
from warmwatch.hooks.dynamo.compilations import install, phases, slowest
from warmwatch.hooks.dynamo.events import Compiling
from warmwatch.hooks.points import Fact, Listener

FORWARD = SimpleNamespace(
    dynamo_cumulative_compile_time_us=1000,
    aot_autograd_cumulative_compile_time_us=900,
    inductor_cumulative_compile_time_us=700,
    triton_compile_time_us=300,
    compile_time_autotune_time_us=None,
    guard_count=31,
    guard_latency_us=117.6,
)


def test_phases_are_exclusive_and_add_up() -> None:
    found = phases(FORWARD)
    assert found == {"kernel_compile": 300, "inductor": 400, "aot_autograd": 200, "dynamo": 100}
    assert sum(found.values()) == FORWARD.dynamo_cumulative_compile_time_us


def test_a_backward_has_no_time_of_dynamo() -> None:
    backward = SimpleNamespace(
        backward_cumulative_compile_time_us=500,
        inductor_cumulative_compile_time_us=450,
        triton_compile_time_us=400,
        compile_time_autotune_time_us=20,
    )
    assert phases(backward) == {
        "kernel_compile": 400,
        "autotune": 20,
        "inductor": 30,
        "aot_autograd": 50,
    }


@pytest.mark.parametrize(
    ("kernels_json", "kernels"),
    [
        ('[["a", 5], ["b", 9], ["c", 7], ["d", 1]]', [["b", 9], ["c", 7], ["a", 5]]),
        ("{}", []),
        ("no JSON", []),
        ('[["a"]]', []),
        (None, []),
    ],
)
def test_only_the_slowest_kernels_are_reported(
    kernels_json: str | None, kernels: list[list[object]]
) -> None:
    assert slowest(kernels_json) == kernels


def test_what_is_stored_of_threads_and_frames_is_bounded() -> None:
    """Of threads that ended in a compilation, and of frames whose code is made anew."""
    rank, compiling = Rank(), Compiling()
    for thread in range(20_000):
        compiling.begun(thread, {"id": f"{thread}/0", "code": str(thread)})
        compiling.recompile(thread, {"reason": "x", "category": "shape"})
    for name in range(20_000):
        rank.ledger.post(
            "fallback", {"id": f"{name}/8", "name": str(name), "file": "a.py", "line": 1}
        )
    tables = [*vars(compiling).values(), rank.ledger._compilations._at_limit]
    assert max(map(len, tables)) <= 4096


def test_what_suppress_errors_does_not_hide_is_no_fallback() -> None:
    """PyTorch raises for a branch of ``cond`` that it cannot capture in any case."""
    import torch

    facts = list[str]()

    class Facts(Listener):
        def post(self, fact: Fact, values: Mapping[str, Any]) -> None:
            facts.append(fact if "failure" not in values else "failure")

    def printed(x: Any) -> Any:
        print()
        return x + 1

    def called(x: Any) -> Any:
        return torch.cond(x.sum() > 0, printed, lambda x: x * 2, (x,))

    uninstall = install(Facts()).uninstall
    assert uninstall
    raises = pytest.raises(Exception, match="captured")
    with torch._dynamo.config.patch(suppress_errors=True), raises:
        torch.compile(called, backend="eager")(torch.ones(2))
    uninstall()
    torch._dynamo.reset()
    assert facts == ["failure"]
