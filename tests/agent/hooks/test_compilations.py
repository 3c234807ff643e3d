"""The figures of a compilation, from PyTorch's record of it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from support.ranks import Rank
from warmwatch.hooks.dynamo.compilations import costs, entry, kind_of, phases, slowest
from warmwatch.hooks.dynamo.events import Compiling

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


def test_tuning_at_run_time_is_only_autotuning() -> None:
    tuned = SimpleNamespace(is_runtime=True, runtime_triton_autotune_time_us=70)
    assert phases(tuned) == {"autotune": 70}


def test_a_version_without_costs_gives_no_text() -> None:
    assert not any(costs(SimpleNamespace()).values())


def test_known_guards_and_their_latency_are_reported() -> None:
    values = costs(FORWARD)
    assert (values["guards"], values["guard_us"]) == (31, 117)


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


@pytest.mark.parametrize("reason", [{}, {"recompile_reason": None}], ids=["2.6", "later"])
def test_what_error_on_recompile_refuses_has_failed_and_is_not_at_the_limit(
    reason: dict[str, None],
) -> None:
    """Of both PyTorch names no function."""
    record = {"compile_id": "0/1", "is_forward": None, "co_name": None, **reason}
    refused = entry(SimpleNamespace(**record, fail_type="RecompileError"))
    assert refused == {"id": "0/1", "failure": "RecompileError"}
    assert entry(SimpleNamespace(**record, fail_type=None))["at_limit"]


def test_the_code_of_an_id_is_of_its_last_function() -> None:
    """Ids restart after ``torch._dynamo.reset()``; enough of them are stored for a training."""
    functions = Compiling()
    functions.begun(1, {"id": "0/0", "code": "a"})
    functions.begun(1, {"id": "1/0"})  # of which nothing is known
    functions.begun(1, {"id": "0/0", "code": "b"})
    assert (functions.code("0/0"), functions.code("1/0"), functions.code(None)) == ("b", None, None)
    for number in range(5000):
        functions.begun(1, {"id": f"{number}/9", "code": "c"})
    assert (functions.code("0/0"), functions.code("4999/9")) == (None, "c")


def test_the_record_of_cuda_graphs_has_the_events_before_it_on_its_thread() -> None:
    """A graph of a new size is prepared in one call, and recorded in the next."""
    rank = Rank()
    runtime = {"is_runtime": True, "compile_id": "0/0", "runtime_cudagraphify_time_us": 400}
    for event, is_forward in (
        ("cudagraphify.get_container", False),
        ("CUDAGraphNode.record", True),
        ("inductor_compile", True),
    ):
        rank.ledger.begin(event)
        rank.ledger.end(event)
        metrics = SimpleNamespace(**runtime, is_forward=is_forward)
        rank.ledger.post("compilation", {"kind": kind_of(metrics), **entry(metrics)})
    lines = [values for event, _, values in rank.store.notes if event == "compilation"]
    fields = "kind", "new_sizes", "recorded", "backward"
    assert [[one.get(field) for field in fields] for one in lines] == [
        ["cudagraph", 1, None, True],
        ["cudagraph", None, 1, None],
        ["cudagraph", None, None, None],
    ]


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
