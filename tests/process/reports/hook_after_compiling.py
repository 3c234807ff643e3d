"""A forward hook is registered after the first steps."""

import torch
from _loop import CURED, net, steps

SOURCE = "pytorch/pytorch#117758"
EXPECT = {"category": None, "names": ["hook"], "remedy": ["before"], "recompiles": 1, "cured": 0}

torch._dynamo.config.skip_nnmodule_hook_guards = False
model = torch.compile(torch.nn.Sequential(net, torch.nn.ReLU()), backend="eager")


def hook(module, arguments, output):
    return output * 2


def loss_of(number):
    if number == (0 if CURED else 4):
        net.register_forward_hook(hook)
    return model(torch.ones(2, 4))


steps(8, loss_of)
