"""What compiled code refuses when it runs, known by PyTorch's own exceptions; and the remedies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from warmwatch.process.ending import end_of
from warmwatch.shared.fallbacks import refusal_of

DONATED = (
    "This backward function was compiled with non-empty donated buffers which requires "
    "create_graph=False and retain_graph=False."
)


class QuotingError(RuntimeError):
    def __str__(self) -> str:
        raise AssertionError("its code ran")


def penalty(of: Any, model: Any) -> None:
    """A gradient penalty, as of a Wasserstein GAN, of ``of``; ``model`` is what it trains."""
    import torch

    x = torch.ones(2, 4, requires_grad=True)
    (slope,) = torch.autograd.grad(of(x).square().sum(), x, create_graph=True)
    (slope.norm() + model(x).sum()).backward()


def heads(rows: Any, model: Any, *, cured: bool) -> None:
    """The losses of two heads, which are rows of one parameter."""
    first, second = rows(model.weight)
    losses = (first.sum(), second.square().sum())
    for loss in (sum(losses),) if cured else losses:
        loss.backward()


def jacobian(of: Any) -> None:
    import torch

    out = of(torch.ones(2, 4))
    weights = list(of.parameters())
    torch.vmap(lambda v: torch.autograd.grad(out, weights, v))(torch.ones(1, 2, 2))


def traced(of: Any) -> None:
    import torch

    torch.jit.trace(of, torch.ones(2, 4))


def wrapped(net: Any, **options: Any) -> Any:
    import torch

    return torch.compile(net, **options)


def options_of(*mode: str) -> Any:
    import torch

    return torch._inductor.list_mode_options(*mode)


def listed(function: str, name: str) -> str:
    """``name``, if PyTorch lists it."""
    import torch

    module, _, called = function.partition(".")
    assert name in getattr(getattr(torch, module), called)()
    return name


def rows_of(weight: Any) -> Any:
    return weight.unbind(0)


# the training, and with the remedy; both get the module and how to compile
REFUSED: dict[str, tuple[Callable[..., None], Callable[..., None]]] = {
    "double_backward": (
        lambda net, compiled: penalty(compiled(net), net),
        lambda net, compiled: penalty(net, compiled(net)),
    ),
    "freed_graph": (
        lambda net, compiled: heads(compiled(rows_of), net, cured=False),
        lambda net, compiled: heads(compiled(rows_of), net, cured=True),
    ),
    "transformed_backward": (
        lambda net, compiled: jacobian(compiled(net)),
        lambda net, _: jacobian(net),
    ),
    "mode_and_options": (
        lambda net, _: wrapped(net, mode="reduce-overhead", options={"max_autotune": True}),
        lambda net, _: wrapped(net, options={**options_of("reduce-overhead"), "debug": False}),
    ),
    "unknown_mode": (
        lambda net, _: wrapped(net, mode="reduce"),
        lambda net, _: [wrapped(net, mode=name) for name in options_of()],
    ),
    "unknown_option": (
        lambda net, _: wrapped(net, options={"max_autotun": True}),
        lambda net, _: wrapped(net, options={listed("_inductor.list_options", "debug"): True}),
    ),
    "unknown_backend": (
        lambda net, _: wrapped(net, backend="inductr"),
        lambda net, _: wrapped(net, backend=listed("_dynamo.list_backends", "inductor")),
    ),
    "traced_again": (lambda net, compiled: traced(compiled(net)), lambda net, _: traced(net)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_compiled_code_refuses_is_named_and_the_remedy_cures(name: str) -> None:
    import torch

    def compiled(function: Any) -> Any:
        return torch.compile(function, backend="aot_eager")

    refused, cured = REFUSED[name]
    with pytest.raises(RuntimeError) as raised:
        refused(torch.nn.Linear(4, 2), compiled)
    end = end_of(raised.value, None)
    kind = "InvalidBackend" if name == "unknown_backend" else "RuntimeError"
    assert (end.exception, end.refusal) == (kind, name)
    cured(torch.nn.Linear(4, 2), compiled)


def test_only_what_pytorch_raises_itself_is_named_and_no_code_of_the_program_runs() -> None:
    assert refusal_of(RuntimeError(DONATED)) == "donated_buffers"
    assert refusal_of(QuotingError(DONATED)) is None
    assert refusal_of(ValueError(DONATED)) is None
    assert refusal_of(RuntimeError()) is None
    assert refusal_of(RuntimeError(7)) is None
