"""Breaks at the parts of a training: modules, optimizers, checkpoints, operators of one's own."""

import torch
import torch.utils.checkpoint
import torch.utils.cpp_extension
from torch import nn

p = nn.Parameter(torch.ones(3, 3))
linear, other = nn.Linear(3, 3), nn.Linear(3, 3)
weight = nn.Parameter(torch.ones(3))
weight.grad = torch.ones(3)
sgd = torch.optim.SGD([weight], 0.1)
adam = torch.optim.Adam([weight], 0.1)
lbfgs = torch.optim.LBFGS([weight])
schedule = torch.optim.lr_scheduler.StepLR(torch.optim.SGD([weight], 0.1), 3)
scaler = torch.amp.GradScaler("cpu")
observer = torch.ao.quantization.MinMaxObserver()
average = torch.optim.swa_utils.AveragedModel(linear)
scripted, plain = torch.jit.script(linear), linear
traced = torch.jit.trace(linear, torch.ones(3, 3))
printing, watched = nn.Linear(3, 3), nn.Linear(3, 3)
printing.register_forward_hook(lambda *_: print("forward"))
watched.register_full_backward_hook(lambda *_: None)
unwatched = nn.Linear(3, 3)
unwatched.load_state_dict(watched.state_dict())
printing.load_state_dict(linear.state_dict())
calls = []
copied = torch.zeros(3, 3)
checkpoint = torch.utils.checkpoint.checkpoint
LIBRARY = "a library's code breaks the graph"
ON_PURPOSE = "left out of compilation on purpose"
OPERATOR = "torch.library.register_fake"


class Printed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        print("backward")
        return gradient * 2


class Silent(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class Timed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * len(str(gradient))


class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


@torch.compiler.disable
def disabled(x):
    return x + 1


@torch._dynamo.disable(recursive=False)
def disabled_alone(x):
    return x + 1


library = torch.library.Library("of_breaks", "DEF")
library.define("plain(Tensor x) -> Tensor")
library.impl("plain", lambda x: x + 1, "CPU")
library.define("faked(Tensor x) -> Tensor")
library.impl("faked", lambda x: x + 1, "CPU")
torch.library.register_fake("of_breaks::faked", lambda x: torch.empty_like(x), lib=library)


class Writer:
    def add_scalar(self, name, value, step):
        calls.append(float(value))


writer = Writer()


def appended(y):
    calls.append(1)
    return y * p


def printed(y):
    print("forward")
    return y * p


def numbered(y):
    return y * p * y.sum().item()


def silent(y):
    return y * p


def summed(y):
    return y * p * y.sum()


MOVED = {
    "zero_grad": ("`Optimizer.zero_grad`", "sgd.zero_grad()"),
    "schedule": ("`LRScheduler.step`", "schedule.step()"),
    "scaler": ("`GradScaler.scale`", "scaler.scale(x.sum())", "x + v"),
    "observer": ("`MinMaxObserver.forward`", "observer(x)", "v + 1"),
    "jit_isinstance": (
        "`torch.jit.isinstance`",
        "torch.jit.isinstance([1], list[int])",
        "x * (1 + v)",
    ),
    "traced": ("`_CachedForward.__get__`", "traced(x)", "v + 1"),
    "new_module": ("torch.nn.Parameter()", "nn.Linear(3, 3)", "v(x)"),
    "load_state": ("a function of torch", "linear.load_state_dict(linear.state_dict())"),
    "to_double": ("torch.nn.Parameter()", "other.double().float()", "v(x)"),
    "swap": ("`swap_tensors`", "torch.utils.swap_tensors(torch.ones(3), torch.zeros(3))"),
    "include_paths": ("`include_paths`", "torch.utils.cpp_extension.include_paths()", "x * len(v)"),
    "data_parallel": ("`_get_available_device_type`", "nn.DataParallel(linear)(x)", "x + v"),
    "reset": ("`reset`", "torch._dynamo.reset()"),
}

CURED = {
    "disable": {
        "cause": "torch.compiler.disable",
        "remedy": ON_PURPOSE,
        "broken": "return disabled(x) * 2",
        "cured": "return v * 2",
        "outside": "disabled(x)",
    },
    "disable_alone": {
        "cause": "torch.compiler.disable",
        "remedy": ON_PURPOSE,
        "broken": "return disabled_alone(x) * 2",
        "cured": "return v * 2",
        "outside": "disabled_alone(x)",
    },
    "graph_break": {
        "cause": "graph_break()",
        "remedy": "remove torch._dynamo.graph_break()",
        "broken": "torch._dynamo.graph_break()\nreturn x + 1",
        "cured": "return x + 1",
    },
    "skip_frame": {
        "cause": "skip_frame()",
        "remedy": "Remove the `torch._dynamo.skip_frame()` call",
        "broken": "torch._dynamo.skip_frame()\nreturn x + 1",
        "cured": "return x + 1",
    },
    "line_search": {
        "cause": "torch.compiler.disable",
        "remedy": ON_PURPOSE,
        "broken": "lbfgs.step(lambda: (weight * 1).sum())\nreturn x + 1",
        "cured": "return x + 1",
    },
    "scripted": {
        "cause": "torch.jit.script",
        "remedy": "Compile the module without torch.jit",
        "broken": "return scripted(x)",
        "cured": "return plain(x)",
    },
    "operator": {
        "cause": "running with fake tensors",
        "remedy": OPERATOR,
        "broken": "return torch.ops.of_breaks.plain(x)",
        "cured": "return torch.ops.of_breaks.faked(x)",
    },
    "hook_that_prints": {
        "cause": "`print`",
        "remedy": "Take the printing out",
        "broken": "return printing(x)",
        "cured": "return linear(x)",
        "adds": "print",
        "despite": ("reorderable_logging_functions",),
    },
    "backward_hook": {
        "cause": "backwards hooks",
        "remedy": "Register the hook on a parameter",
        "broken": "return watched(x)",
        "cured": "return unwatched(x)",
        "outside": "unwatched.weight.register_hook(lambda gradient: None)",
    },
    "checkpoint_that_prints": {
        "cause": "`print`",
        "remedy": "Take the printing out",
        "broken": "return checkpoint(printed, x, use_reentrant=False)",
        "cured": "return checkpoint(silent, x, use_reentrant=False)",
        "adds": "print",
    },
    "checkpoint_with_a_number": {
        "cause": "needs the value of a tensor",
        "remedy": "Keep the number a tensor",
        "broken": "return checkpoint(numbered, x, use_reentrant=False)",
        "cured": "return checkpoint(summed, x, use_reentrant=False)",
    },
    "checkpoint_that_appends": {
        "cause": "changes a list or an attribute",
        "remedy": "which may not change a list",
        "broken": "return checkpoint(appended, x, use_reentrant=False)",
        "cured": "return checkpoint(silent, x, use_reentrant=False)",
    },
    "hook_that_appends": {
        "cause": "changes a list or an attribute",
        "remedy": "write the value with copy_()",
        "broken": "y = p * x\ny.register_hook(lambda g: calls.append(g))  #!\nreturn y.sum()",
        "cured": "y = p * x\ny.register_hook(lambda g: copied.copy_(g))\nreturn y.sum()",
    },
    "backward_that_prints": {
        "cause": "`print`",
        "remedy": "Take the printing out",
        "broken": "return Printed.apply(p * x).sum()",
        "cured": "return Silent.apply(p * x).sum()",
    },
    "backward_with_a_text": {
        "cause": "`str`",
        "remedy": "Take this line out of the backward",
        "broken": "return Timed.apply(p * x).sum()",
        "cured": "return Silent.apply(p * x).sum()",
    },
    "changed_input": {
        "cause": "mark_dirty",
        "broken": "return Dirty.apply(p * x)",
        "cured": "return v * 1",
        "outside": "Dirty.apply(p * x)",
    },
    "average": {
        "cause": "needs the value of a tensor",
        "remedy": "call it outside of the compiled function",
        "broken": "average.update_parameters(linear)\nreturn x + 1",
        "cured": "return x + 1",
        "outside": "average.update_parameters(linear)",
        "despite": ("capture_scalar_outputs",),
    },
    "writer": {
        "cause": "needs the value of a tensor",
        "remedy": "outside of the compiled function",
        "broken": "writer.add_scalar('loss', x.sum(), 1)\nreturn x + 1",
        "cured": "return x + 1",
    },
}
