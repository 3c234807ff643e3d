"""Floating-point operations of graphs, against PyTorch's own counter of eager calls and by hand."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from warmwatch.hooks.inductor.flops import (
    ALIKE,
    Calls,
    Counted,
    GraphCalls,
    operations,
    operations_of_text,
)


@pytest.fixture(scope="module")
def models() -> ModuleType:
    """Imported by the worker that runs these tests, not by each that collects them."""
    pytest.importorskip("torch")
    return import_module("support.flop_models")


def counted(model: Any, example: Any, **options: Any) -> Counted:
    """The operations of the graphs that Inductor would get for a step, and of their text."""
    import torch
    from torch._dynamo.backends.common import aot_autograd
    from torch._inductor.decomposition import select_decomp_table
    from torch.utils.flop_counter import flop_registry

    found: list[Counted] = []

    def look(module: Any, _inputs: Any) -> Any:
        found.append(operations(module.graph, flop_registry))
        text = module.print_readable(print_output=False, include_stride=True, include_device=True)
        of_text = operations_of_text(text, flop_registry)
        assert of_text == found[-1]
        return module.forward

    backend = aot_autograd(fw_compiler=look, bw_compiler=look, decompositions=select_decomp_table())
    torch._dynamo.reset()
    torch.compile(model, backend=backend, **options)(example).backward()
    assert len(found) == 2
    unknown = any(one.flops is None for one in found)
    return Counted(
        None if unknown else sum(one.flops or 0 for one in found),
        tuple(name for one in found for name in one.excluded),
        Counter() if unknown else sum((Counter(one.dtypes) for one in found), Counter()),
    )


def eager(model: Any, example: Any) -> float:
    """The same by PyTorch's counter of what is called, with attention as plain products."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(example).backward()
    return float(counter.get_total_flops())


@pytest.mark.slow
@pytest.mark.parametrize("llama", [False, True])
def test_a_decoder_has_six_operations_a_parameter_and_token_and_its_attention(
    models: ModuleType, llama: bool
) -> None:
    model, tokens = models.Decoder(llama=llama), models.tokens()
    known = counted(model, tokens)
    assert known.flops == pytest.approx(models.by_hand(model), rel=0.01)
    assert known.dtypes == {"float32": known.flops}
    assert known.flops == pytest.approx(eager(model, tokens), rel=0.03)
    assert known.excluded == ()


@pytest.mark.long
@pytest.mark.slow
def test_convolutions_count_as_pytorch_counts_them(models: ModuleType) -> None:
    model, pictures = models.Residual(), models.torch.randn(4, 3, 64, 64)
    assert counted(model, pictures).flops == pytest.approx(eager(model, pictures), rel=0.03)


@pytest.mark.long
@pytest.mark.slow
def test_with_sizes_that_vary_there_is_no_count(models: ModuleType) -> None:
    """The size that PyTorch compiled with may be that of a last batch, or of one sequence."""
    known = counted(models.Decoder(llama=False), models.tokens(), dynamic=True)
    assert known == Counted(None, (), {})


def test_operations_without_a_formula_are_omitted_and_named(models: ModuleType) -> None:
    torch = models.torch

    @torch.library.custom_op(  # type: ignore[untyped-decorator]
        "warmwatch_test::product", mutates_args=(), schema="(Tensor a, Tensor b) -> Tensor"
    )
    def product(a: Any, b: Any) -> Any:
        return a @ b

    product.register_fake(lambda a, b: a.new_empty(a.shape[0], b.shape[1]))
    product.register_autograd(
        lambda ctx, grad: (grad @ ctx.saved_tensors[1].T, None),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),  # noqa: ARG005
    )
    weight = torch.randn(8, 8)
    model = torch.nn.Linear(8, 8)
    known = counted(lambda x: product(model(x), weight).sum(), torch.randn(4, 8))
    assert known.excluded == ("warmwatch_test::product",)
    assert known.flops == 3 * 2 * 4 * 8 * 8  # the linear layer's, and the backward of the product


def test_triton_kernels_of_the_user_are_omitted_and_named(models: ModuleType) -> None:
    from torch._higher_order_ops.triton_kernel_wrap import triton_kernel_wrapper_functional
    from torch.utils.flop_counter import flop_registry

    graph = models.torch.fx.Graph()
    graph.call_function(triton_kernel_wrapper_functional, ())
    name = "triton_kernel_wrapper_functional"
    assert operations(graph, flop_registry) == Counted(0, (name,), {})
    text = f"""
        x: "f32[4, 8]" = torch.ops.aten.mm.default(a, b)
        y = torch.ops.higher_order.{name}(kernel_idx = 0, kwargs = {{'x': x, 'n': 32}});  x = None
        z: "f32[4, 8]" = y['x'];  y = None"""
    known = operations_of_text(f"{TEXT.partition('# File')[0]}{text}", flop_registry)
    assert known == Counted(2 * 4 * 8 * 8, (name,), {"float32": 2 * 4 * 8 * 8})


ATTENTION = """
class GraphModule(torch.nn.Module):
    def forward(self, q: "bf16[2, 8, 16, 32]", k: "bf16[2, 2, 64, 32]", v: "bf16[2, 2, 64, 32]"):
        x = torch.ops.aten._scaled_dot_product_KERNEL_attention.default(q, k, v, 0.0, True)
        y = torch.ops.aten._scaled_dot_product_KERNEL_attention_backward.default(q, q, k, v, q)
        return (y,)
"""


@pytest.mark.parametrize("kernel", ["flash", "efficient", "cudnn"])
def test_attention_counts_each_head_of_the_queries_and_no_repeated_scores(kernel: str) -> None:
    flop_counter = pytest.importorskip("torch.utils.flop_counter")
    known = operations_of_text(ATTENTION.replace("KERNEL", kernel), flop_counter.flop_registry)
    product = 2 * 2 * 8 * 16 * 64 * 32
    assert known == Counted((2 + 4) * product, (), {"bfloat16": (2 + 4) * product})


TEXT = """
class GraphModule(torch.nn.Module):
    def forward(self, a: "f32[4, 8]", b: "f32[8, 8]"):
        # File: train.py:3 in forward, code: a: "f32[1, 1]" = given
        x: "f32[4, 8]" = torch.ops.aten.mm.default(a, b)
        y: "f32[4, 8]" = torch.ops.gone_since.product.default(x, b)
        z: "f32[4, 8]" = torch.ops.aten.mm.default(y, <object at 0x7f>)
        return (z,)
"""


FP8 = """
class GraphModule(torch.nn.Module):
    def forward(self, a: "f8e4m3fn[64, 32]", b: "f8e4m3fn[32, 16]", c: "f32[]", d: "bf16[64, 16]",
        e: "f64[4, 8]", f: "f64[8, 8]", g: "bf16[16, 16]"):
        x: "bf16[64, 16]" = torch.ops.aten._scaled_mm.default(a, b, c, c)
        y: "bf16[64, 16]" = torch.ops.aten.mm.default(d, g)
        z: "f64[4, 8]" = torch.ops.aten.mm.default(e, f)
        return (x, y, z)
"""


def test_operations_count_for_the_type_that_they_compute_in(models: ModuleType) -> None:
    from torch.utils.flop_counter import flop_registry

    assert models.torch
    of_text = operations_of_text(FP8, flop_registry)
    fp8, bf16, f64 = 2 * 64 * 32 * 16, 2 * 64 * 16 * 16, 2 * 4 * 8 * 8
    assert of_text.dtypes == {"float8": fp8, "bfloat16": bf16, "other": f64}
    assert of_text.flops == fp8 + bf16 + f64


def test_a_compiled_scaled_product_counts_as_float8(models: ModuleType) -> None:
    torch = models.torch
    scale, eight = torch.ones(()), torch.ones(16, 16).to(torch.float8_e4m3fn)
    try:
        torch._scaled_mm(eight, eight.t(), scale, scale)
    except NotImplementedError:
        pytest.skip("this PyTorch has no such product on a CPU")

    def model(x: Any) -> Any:
        a = x.detach().to(torch.float8_e4m3fn)
        product = torch._scaled_mm(a, a.t(), scale, scale, out_dtype=torch.bfloat16)
        return (x @ x.t() + product).float().sum()

    known = counted(model, torch.randn(32, 32, dtype=torch.bfloat16, requires_grad=True))
    product = 2 * 32**3
    assert known.dtypes == {"float8": product, "bfloat16": 3 * product}


def _calls(*steps: str, since: int = 0) -> list[Counter[int] | None]:
    """What is known at each call; a letter of a step is a call of that graph."""
    calls = Calls(since)
    return [
        calls.called(ord(graph), since + number)
        for number, graphs in enumerate(steps)
        for graph in graphs
    ]


def test_the_calls_of_a_step_are_stable_after_three_equal_complete_ones() -> None:
    found = _calls("aabb", *["aabb"] * ALIKE, "a", since=5)  # the first may have begun before
    assert found[:-1] == [None] * (4 + 4 * ALIKE)
    assert found[-1] == {ord("a"): 2, ord("b"): 2}


class CompiledFxGraph:
    """Stands in for Inductor's class, which is found by its name."""

    def __init__(self) -> None:
        self.current_callable = lambda: None

    def __call__(self) -> None:
        self.current_callable()


class Steps:
    """A listener that counts steps."""

    def __init__(self) -> None:
        self.marked = 0
        self.found: list[int | None] = []
        self.dtypes: Mapping[str, int] = {}

    def steps_marked(self) -> int:
        return self.marked

    def step_counted(
        self,
        flops: int | None,
        excluded: tuple[str, ...],  # noqa: ARG002
        dtypes: Mapping[str, int],
    ) -> None:
        self.found.append(flops)
        self.dtypes = dtypes


def test_a_call_counts_once_after_another_tool_has_wrapped_the_wrapper() -> None:
    steps, graph = Steps(), CompiledFxGraph()
    counting = GraphCalls(steps, {})

    def train() -> None:
        for _ in range(ALIKE + 2):
            graph()
            steps.marked += 1

    counting.after(graph, Counted(10))
    ours = graph.current_callable
    graph.current_callable = other = lambda: ours()
    train()
    assert graph.current_callable is other
    counting.after(graph, Counted(10))  # compiled again
    train()
    assert steps.found == [10, 10]
    assert graph.current_callable is other


def test_counting_restores_each_graph_and_never_modifies_the_class() -> None:
    steps, graphs = Steps(), [CompiledFxGraph() for _ in range(3)]
    originals, members = [one.current_callable for one in graphs], dict(vars(CompiledFxGraph))
    counting = GraphCalls(steps, {})
    for one in graphs:
        counting.after(one, Counted(10))
    assert all(vars(one)["current_callable"] not in originals for one in graphs)
    for _ in range(ALIKE + 2):
        for one in graphs:
            one()
        steps.marked += 1
    assert steps.found == [30]
    assert [one.current_callable for one in graphs] == originals
    counting.after(graphs[0], Counted(10))
    assert graphs[1].current_callable is not originals[1], "a step calls earlier graphs, too"
    counting.end()
    assert [one.current_callable for one in graphs] == originals
    assert dict(vars(CompiledFxGraph)) == members


@pytest.mark.parametrize("ends", [False, True])
def test_the_code_of_a_graph_goes_with_the_graph(ends: bool) -> None:
    """It may hold tensors: frozen parameters, the memory of CUDA graphs."""
    graph, counting = CompiledFxGraph(), GraphCalls(Steps(), {})
    code = weakref.ref(graph.current_callable)
    counting.after(graph, Counted(1))
    if ends:
        counting.end()
    del graph
    assert code() is None
