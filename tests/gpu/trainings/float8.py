"""Linear layers that multiply in FP8, with one scale a tensor: what FP8 trainings compile."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
_LARGEST = {E4M3: 448.0, E5M2: 57344.0}


def _scaled(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """``x`` in ``dtype``, and the scale that takes it back."""
    scale = x.abs().amax().float().clamp(min=1e-12) / _LARGEST[dtype]
    return (x.float() / scale).to(dtype), scale


def _product(
    a: torch.Tensor, b: torch.Tensor, types: tuple[torch.dtype, torch.dtype]
) -> torch.Tensor:
    """``a @ b`` of bfloat16 matrices; cuBLAS wants ``b`` column by column."""
    (eight, scale), (other, other_scale) = _scaled(a, types[0]), _scaled(b, types[1])
    columns = other.t().contiguous().t()
    return torch._scaled_mm(
        eight.contiguous(), columns, scale, other_scale, out_dtype=torch.bfloat16
    )


class _Product(torch.autograd.Function):
    """``x @ weight.t()``, and both of its gradients, in FP8."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight.t(), (E4M3, E4M3))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, weight = ctx.saved_tensors
        return (
            _product(gradient, weight, (E5M2, E4M3)),
            _product(gradient.t(), x, (E5M2, E4M3)),
        )


class Float8Linear(nn.Linear):
    """A linear layer whose three products are in FP8."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` of ``[..., in]`` to ``[..., out]`` in bfloat16."""
        rows = x.reshape(-1, x.shape[-1]).bfloat16()
        result = _Product.apply(rows, self.weight.bfloat16()).reshape(*x.shape[:-1], -1)
        return result if self.bias is None else result + self.bias.bfloat16()


def convert(model: nn.Module) -> list[nn.Linear]:
    """Make each linear layer below ``model`` one of FP8, in place; returns them."""
    layers = [module for module in model.modules() if type(module) is nn.Linear]
    for layer in layers:
        layer.__class__ = Float8Linear
    return layers
