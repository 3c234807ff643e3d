"""Registers that kernels spill, through Inductor's own classes; figures of kernels on an H100."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from warmwatch.hooks.inductor import spills


@pytest.fixture(name="listener")
def _listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mock]:
    """With the hook installed; the benchmark of a kernel returns what the kernel holds."""
    pytest.importorskip("torch")
    from torch._inductor import async_compile
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    def benchmark_all_configs(kernel: Any) -> Any:
        return kernel.milliseconds

    monkeypatch.setattr(CachingAutotuner, "benchmark_all_configs", benchmark_all_configs)
    wait = async_compile.AsyncCompile.wait
    listener = Mock()
    installed = spills.install(listener)
    for put in installed.late.values():
        put()
    yield listener
    assert installed.uninstall is not None
    installed.uninstall()
    assert async_compile.AsyncCompile.wait is wait
    assert CachingAutotuner.benchmark_all_configs is benchmark_all_configs


def kernel(*registers: int | None, **meta: Any) -> Any:
    """A compiled kernel with a launcher for each number of spilled registers."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    made = CachingAutotuner.__new__(CachingAutotuner)
    made.launchers = [Mock(n_spills=number) for number in registers]
    made.inductor_meta = meta
    return made


def measure(one: Any, *milliseconds: float) -> None:
    one.milliseconds = dict(zip(one.launchers, milliseconds, strict=True))
    one.benchmark_all_configs()


def wait_for(**kernels: Any) -> None:
    from torch._inductor.async_compile import AsyncCompile

    AsyncCompile().wait({"torch": sys, **kernels})


def reported(listener: Mock) -> list[tuple[Any, ...]]:
    facts = [values for event, values in (call.args for call in listener.post.call_args_list)]
    return [(fact["kernel"], fact["registers"], fact.get("seconds")) for fact in facts]


def test_a_kernel_with_one_launcher_is_reported_when_its_graph_is_compiled(listener: Mock) -> None:
    wait_for(softmax_0=kernel(1844), triton_poi_fused_0=kernel(0), unknown=kernel(None))
    assert reported(listener) == [("softmax_0", 1844, None)]


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [
        ((0.571, 0.546), ("tuned_softmax_1", 924, pytest.approx(0.000546))),
        ((float("inf"), float("inf")), ("tuned_softmax_1", 1844, None)),
    ],
)
def test_a_tuned_kernel_is_reported_with_its_final_launcher(
    listener: Mock, milliseconds: tuple[float, ...], expected: tuple[Any, ...]
) -> None:
    """Inductor keeps the first one if it measured none, because all of them spill too much."""
    tuned, candidate = kernel(1844, 924), kernel(1844, 924)
    wait_for(tuned_softmax_1=tuned)
    measure(candidate, *milliseconds)  # it is in no graph
    assert reported(listener) == []
    measure(tuned, *milliseconds)
    measure(tuned, *milliseconds)
    assert reported(listener) == [expected]


def test_a_kernel_that_is_tuned_further_is_not_reported(listener: Mock) -> None:
    wait_for(triton_red_fused_0=kernel(64, coordinate_descent_tuning=True))
    assert reported(listener) == []
