"""A custom operation, an autograd function, modes of dispatch, anomaly detection, a profiler."""
# steps: 6

import optimizers
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

seen = []


@torch.library.custom_op("guest::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


doubled.register_fake(torch.empty_like)
torch.library.register_autograd("guest::doubled", lambda context, gradient: gradient * 2)


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x.clamp(-1, 1)

    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        return gradient * (x.abs() < 1)


class Operations(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        seen.append(str(function))
        return function(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        seen.append(getattr(function, "__name__", str(function)))
        return function(*args, **(kwargs or {}))


model = optimizers.model()
compiled = torch.compile(lambda x: Clipped.apply(doubled(model(x))), backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def step():
    loss = compiled(torch.randn(8, 4)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())


compiled(torch.randn(8, 4)).square().mean().backward()
with Functions():
    torch.compile(model, backend="eager")
    optimizer.step()
step()
with torch.autograd.set_detect_anomaly(True):
    step()
with Operations():
    step()
with Functions():
    step()
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
    step()
print(sorted((event.key, event.count) for event in profile.key_averages()))
print(len(seen), seen)
