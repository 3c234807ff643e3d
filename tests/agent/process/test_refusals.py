"""What compiled code refuses when it runs, known by PyTorch's own exceptions; and the remedies."""

from __future__ import annotations

from typing import Any

import pytest

from warmwatch.process.ending import end_of
from warmwatch.shared.refusals import refusal_of

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


def test_a_second_derivative_of_compiled_code_is_refused_and_the_remedy_cures() -> None:
    import torch

    model = torch.nn.Linear(4, 1)
    compiled = torch.compile(model, backend="aot_eager")
    with pytest.raises(RuntimeError) as raised:
        penalty(compiled, compiled)
    end = end_of(raised.value, None)
    assert (end.exception, end.refusal) == ("RuntimeError", "double_backward")
    penalty(model, compiled)  # the uncompiled module, where the gradient is differentiated again


def test_only_what_pytorch_raises_itself_is_named_and_no_code_of_the_program_runs() -> None:
    assert refusal_of(RuntimeError(DONATED)) == "donated_buffers"
    assert refusal_of(QuotingError(DONATED)) is None
    assert refusal_of(ValueError(DONATED)) is None
    assert refusal_of(RuntimeError()) is None
    assert refusal_of(RuntimeError(7)) is None
