"""What the agent replaces, called in compiled functions and in functions below them."""
# core
# fault: torch 2.11: a compiled `super().train()` has two guards more, on the wrapper
# environment: TORCH_LOGS=graph_breaks

import functools
import importlib
import io
import subprocess
from collections.abc import Mapping

import torch
from torch.utils.data import DataLoader

torch.manual_seed(0)
isinstance("", Mapping)  # Dynamo traces the first such check, here one of logging


class Untraced(torch.nn.Linear):
    @torch.compiler.disable
    def train(self, mode=True):
        return super().train(mode)


class Traced(torch.nn.Linear):
    def train(self, mode=True):
        return super().train(mode)


model, untraced, traced = torch.nn.Linear(4, 1), Untraced(4, 1), Traced(4, 1)
ended = subprocess.Popen(["true"])
ended.wait()
batches = iter(DataLoader(torch.randn(40, 4), batch_size=2))


@functools.wraps(subprocess.Popen.communicate)
def communicate(process):
    return process.pid > 0


@torch.compiler.disable(recursive=False)
def below():
    model.eval()
    model.train()
    next(batches)
    ended.communicate()
    torch.save(model, io.BytesIO())
    torch.optim.SGD(model.parameters(), lr=0.1)
    importlib.import_module("torch.utils.cpp_extension")


def switching(x, module):
    module.eval()
    y = module(x)
    module.train()
    return y


functions = (
    lambda x: below() or x + 1,
    lambda x: switching(x, model),
    lambda x: switching(x, untraced),
    lambda x: switching(x, traced),
    lambda x: model(next(batches)) + x,
    lambda x: x + 1 if ended.communicate() else x,
    lambda x: x + 1 if communicate(ended) else x,
    lambda x: torch.compile(model, backend="eager")(x),
    lambda x: torch.optim.SGD([x], lr=0.1) and x + 1,
)
for function in functions:
    for fullgraph in (False, True):
        compiled = torch.compile(function, backend="eager", fullgraph=fullgraph)
        try:
            print(compiled(torch.ones(2, 4)).sum().item(), compiled(torch.ones(2, 4)).sum().item())
        except Exception as error:
            print(type(error).__name__, str(error).partition("\n")[0])
