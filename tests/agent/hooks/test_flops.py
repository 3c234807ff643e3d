"""Floating-point operations of graphs, against PyTorch's own counter of eager calls and by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from warmwatch.hooks.inductor.flops import ALIKE, MOST_CALLS, Calls, Counted, operations

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional
BATCH, CONTEXT, WIDTH, HEADS, LAYERS, VOCABULARY = 4, 128, 128, 4, 1, 512


class Attention(nn.Module):  # type: ignore[misc]
    """Causal self-attention; ``groups``: heads of keys and values."""

    def __init__(self, groups: int, *, bias: bool) -> None:
        super().__init__()
        self.groups = groups
        self.q = nn.Linear(WIDTH, WIDTH, bias=bias)
        self.kv = nn.Linear(WIDTH, 2 * WIDTH * groups // HEADS, bias=bias)
        self.out = nn.Linear(WIDTH, WIDTH, bias=bias)

    def forward(self, x: Any) -> Any:
        batch, length, _ = x.shape
        q = self.q(x).view(batch, length, HEADS, -1).transpose(1, 2)
        k, v = self.kv(x).view(batch, length, 2, self.groups, -1).transpose(1, 3).unbind(2)
        k, v = (one.repeat_interleave(HEADS // self.groups, 1) for one in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, WIDTH))


class Gated(nn.Module):  # type: ignore[misc]
    """The feed-forward part of Llama."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(WIDTH, 3 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Any) -> Any:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Decoder(nn.Module):  # type: ignore[misc]
    """A small GPT or Llama with its loss."""

    def __init__(self, *, llama: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        norm = nn.RMSNorm if llama else nn.LayerNorm
        wide = (nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.layers = nn.ModuleList()
        for _ in range(LAYERS):
            attention = Attention(2 if llama else HEADS, bias=not llama)
            feed = Gated() if llama else nn.Sequential(*map(_again, wide))
            self.layers.append(nn.ModuleList((norm(WIDTH), attention, norm(WIDTH), feed)))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Any) -> Any:
        x = self.embed(tokens)
        for first, attention, second, feed in self.layers:
            x = x + attention(first(x))
            x = x + feed(second(x))
        return F.cross_entropy(self.head(x).flatten(0, 1), tokens.flatten())


def _again(layer: Any) -> Any:
    return nn.Linear(layer.in_features, layer.out_features) if hasattr(layer, "weight") else layer


class Residual(nn.Module):  # type: ignore[misc]
    """Bottlenecks of ResNet-50 behind its first convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 7, stride=2, padding=3, bias=False)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                *(nn.Conv2d(16, 8, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
                *(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
                *(nn.Conv2d(8, 16, 1, bias=False), nn.BatchNorm2d(16)),
            )
            for _ in range(2)
        )
        self.head = nn.Linear(16, 10)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        for block in self.blocks:
            x = F.relu(x + block(x))
        return self.head(x.mean((2, 3))).square().mean()


def counted(model: Any, example: Any, **options: Any) -> Counted:
    """The operations of the graphs that Inductor would get for a step."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._inductor.decomposition import select_decomp_table
    from torch.utils.flop_counter import flop_registry

    found: list[Counted] = []

    def look(module: Any, _inputs: Any) -> Any:
        found.append(operations(module.graph, flop_registry))
        return module.forward

    backend = aot_autograd(fw_compiler=look, bw_compiler=look, decompositions=select_decomp_table())
    torch._dynamo.reset()
    torch.compile(model, backend=backend, **options)(example).backward()
    assert len(found) == 2
    return Counted(
        sum(one.flops or 0 for one in found), tuple(name for one in found for name in one.excluded)
    )


def eager(model: Any, example: Any) -> float:
    """The same by PyTorch's counter of what is called, with attention as plain products."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(example).backward()
    return float(counter.get_total_flops())


TOKENS: Callable[[], Any] = lambda: torch.randint(VOCABULARY, (BATCH, CONTEXT))  # noqa: E731


def by_hand(model: Any) -> float:
    """6 for each parameter of a product and token, and the attention."""
    parameters = sum(one.numel() for one in model.parameters()) - model.embed.weight.numel()
    return float((6 * parameters + 12 * LAYERS * WIDTH * CONTEXT) * BATCH * CONTEXT)


@pytest.mark.parametrize("llama", [False, True])
def test_a_decoder_has_six_operations_a_parameter_and_token_and_its_attention(llama: bool) -> None:
    model, tokens = Decoder(llama=llama), TOKENS()
    known = counted(model, tokens)
    assert known.flops == pytest.approx(by_hand(model), rel=0.03)
    assert known.flops == pytest.approx(eager(model, tokens), rel=0.03)
    assert known.excluded == ()


def test_convolutions_count_as_pytorch_counts_them() -> None:
    model, pictures = Residual(), torch.randn(4, 3, 64, 64)
    assert counted(model, pictures).flops == pytest.approx(eager(model, pictures), rel=0.03)


def test_sizes_that_vary_count_by_their_hints() -> None:
    model = Decoder(llama=False)
    known = counted(model, TOKENS(), dynamic=True)
    assert known.flops == pytest.approx(by_hand(model), rel=0.03)
    assert known.excluded == ()


def test_what_has_no_formula_is_left_out_by_name() -> None:
    @torch.library.custom_op("warmwatch_test::product", mutates_args=())  # type: ignore[untyped-decorator]
    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b

    product.register_fake(lambda a, b: a.new_empty(a.shape[0], b.shape[1]))
    product.register_autograd(
        lambda ctx, grad: (grad @ ctx.saved_tensors[1].T, None),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),  # noqa: ARG005
    )
    weight = torch.randn(8, 8)
    model = nn.Linear(8, 8)
    known = counted(lambda x: product(model(x), weight).sum(), torch.randn(4, 8))
    assert known.excluded == ("warmwatch_test::product",)
    assert known.flops == 3 * 2 * 4 * 8 * 8  # the linear layer's, and the backward of the product


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


def test_an_evaluation_among_them_starts_the_three_over() -> None:
    found = _calls("a", "a", "accc", "a", "a", "a", "a")
    assert [one for one in found if one is not None] == [{ord("a"): 1}]
    assert found[-1] == {ord("a"): 1}


def test_without_steps_the_calls_are_given_up() -> None:
    calls = Calls(0)
    found = [calls.called(1, 0) for _ in range(MOST_CALLS + 1)]
    assert found == [None] * MOST_CALLS + [Counter()]


def test_calls_that_keep_differing_are_unknown() -> None:
    found = _calls(*(["a", "ab"] * 40))
    assert next(one for one in found if one is not None) == {}
