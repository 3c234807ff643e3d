"""A Triton kernel that the user wrote, inside the compiled model."""

import torch
import triton
import triton.language as tl
from _gpu import finish, model, train

EXPECT = {"states": "compiling warming warm", "cold": True}


@triton.jit
def scale(source, target, n, BLOCK: tl.constexpr):  # noqa: N803 - Triton's own idiom
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, 2.0 * tl.load(source + at, mask=at < n), mask=at < n)


@torch.library.triton_op("warmwatch_tests::doubled", mutates_args={})
def doubled(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(scale)[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), 1024)
    return out


doubled.register_autograd(lambda _context, grad: grad * 2)


class Doubling(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return doubled(x.contiguous())


net = torch.nn.Sequential(model(), Doubling())
optimizer = torch.optim.AdamW(net.parameters())
train(torch.compile(net), optimizer, steps=10)
finish()
