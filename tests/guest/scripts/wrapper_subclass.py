"""A tensor subclass around another tensor, as torchao's quantized weights are."""
# torch: 2.13
# steps: 4

import torch
from torch.utils._pytree import tree_map


class Scaled(torch.Tensor):
    @staticmethod
    def __new__(cls, inner, scale):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=inner.device, requires_grad=False
        )

    def __init__(self, inner, scale):
        self.inner, self.scale = inner, scale

    def __tensor_flatten__(self):
        return ["inner"], {"scale": self.scale}

    @staticmethod
    def __tensor_unflatten__(tensors, context, size, stride):
        return Scaled(tensors["inner"], context["scale"])

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        name = str(function)
        if "detach" in name or "clone" in name or "_to_copy" in name:
            return Scaled(function(args[0].inner), args[0].scale)
        if "add_" in name or "copy_" in name:
            other = args[1].inner if isinstance(args[1], Scaled) else args[1]
            function(args[0].inner, other, **(kwargs or {}))
            return args[0]
        plain = tree_map(lambda x: x.inner * x.scale if isinstance(x, Scaled) else x, args)
        return function(*plain, **(kwargs or {}))


torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
model[0].weight = torch.nn.Parameter(Scaled(model[0].weight.detach(), 2.0))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
compiled = torch.compile(model, backend="aot_eager")
for number in range(4):
    out = (model if number < 2 else compiled)(torch.randn(8, 4))
    loss = out.square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    model.to(torch.float32)
    print(loss.item(), model[0].weight.inner.sum().item())
torch.utils.swap_tensors(model[0].weight, torch.nn.Parameter(Scaled(torch.ones(4, 4), 1.0)))
print(type(model[0].weight).__name__)
