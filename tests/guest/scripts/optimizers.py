"""Optimizers of the shapes that libraries have, each a few lines of its own."""

import torch
from torch.optim import Optimizer


class Sign(Optimizer):
    """A class of one's own: signs of the gradients."""

    def __init__(self, params, lr=0.01):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad.sign(), alpha=-group["lr"])
        return loss


class ScheduleFree(Optimizer):
    """Schedule-free SGD: a method that switches between two sets of parameters."""

    def __init__(self, params, lr=0.1, beta=0.9):
        super().__init__(params, {"lr": lr, "beta": beta, "k": 0, "train_mode": True})

    @torch.no_grad()
    def eval(self):
        self._switch(False, lambda beta: 1 - 1 / beta)

    @torch.no_grad()
    def train(self):
        self._switch(True, lambda beta: 1 - beta)

    def _switch(self, mode, weight):
        for group in self.param_groups:
            if group["train_mode"] is mode:
                continue
            group["train_mode"] = mode
            for parameter in group["params"]:
                if "z" in self.state[parameter]:
                    parameter.lerp_(self.state[parameter]["z"], weight(group["beta"]))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["k"] += 1
            for parameter in group["params"]:
                state = self.state[parameter]
                if "z" not in state:
                    state["z"] = parameter.clone()
                parameter.lerp_(state["z"], 1 / group["k"])
                parameter.add_(parameter.grad, alpha=group["lr"] * (group["beta"] - 1))
                state["z"].sub_(parameter.grad, alpha=group["lr"])


class Muon(Optimizer):
    """Orthogonal updates of matrices by Newton-Schulz; SGD for the rest."""

    def __init__(self, params, lr=0.02, momentum=0.9, rounds=2):
        super().__init__(params, {"lr": lr, "momentum": momentum, "rounds": rounds})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(parameter)
                state["momentum"].lerp_(parameter.grad, 1 - group["momentum"])
                update = state["momentum"]
                if parameter.ndim == 2:
                    update = update / (update.norm() + 1e-7)
                    for _ in range(group["rounds"]):
                        square = update @ update.T
                        update = 1.5 * update - 0.5 * square @ update
                parameter.add_(update, alpha=-group["lr"])


class EightBit(Optimizer):
    """State in eight bits with a scale, as bitsandbytes and torchao keep it."""

    def __init__(self, params, lr=0.01):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state["step"] = torch.tensor(0)
                    state["codes"] = torch.zeros_like(parameter, dtype=torch.int8)
                    state["scale"] = torch.zeros(())
                state["step"] += 1
                momentum = state["codes"].float() * state["scale"]
                momentum = momentum * 0.9 + parameter.grad
                state["scale"].copy_(momentum.abs().max() / 127 + 1e-12)
                state["codes"].copy_((momentum / state["scale"]).round())
                parameter.sub_(group["lr"] * momentum)


class Lookahead:
    """A wrapper that is no ``Optimizer``: slow weights follow every other step."""

    def __init__(self, inner, every=2):
        self.inner, self.every, self.count = inner, every, 0
        self.slow = [[p.detach().clone() for p in g["params"]] for g in inner.param_groups]

    @property
    def param_groups(self):
        return self.inner.param_groups

    def zero_grad(self):
        self.inner.zero_grad()

    def step(self, closure=None):
        loss = self.inner.step(closure)
        self.count += 1
        if self.count % self.every == 0:
            with torch.no_grad():
                for group, slow in zip(self.inner.param_groups, self.slow):
                    for parameter, weight in zip(group["params"], slow):
                        weight.lerp_(parameter, 0.5)
                        parameter.copy_(weight)
        return loss


class Delegating(Optimizer):
    """A subclass around another optimizer, as Accelerate's and DeepSpeed's are."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    param_groups = property(lambda self: self.inner.param_groups)
    state = property(lambda self: self.inner.state)
    defaults = property(lambda self: self.inner.defaults)

    def zero_grad(self, set_to_none=True):
        self.inner.zero_grad(set_to_none)

    def step(self, closure=None):
        return self.inner.step(closure)


class Sub(torch.optim.AdamW):
    """A subclass of PyTorch's that does something before its parent's step."""

    def step(self, closure=None):
        for group in self.param_groups:
            group["weight_decay"] = 0.01
        return super().step(closure)


class Blockwise(Optimizer):
    """BAdam: one optimizer inside, whose parameters rotate over blocks that stay alive."""

    def __init__(self, inner, blocks, every=2):
        self.inner, self.blocks, self.every, self.count = inner, blocks, every, 0
        super().__init__(inner.param_groups, inner.defaults)
        self._choose()

    def _choose(self):
        block = self.blocks[self.count // self.every % len(self.blocks)]
        for parameters in self.blocks:
            for parameter in parameters:
                parameter.requires_grad_(parameters is block)
        self.inner.param_groups[0]["params"] = list(block)

    def step(self, closure=None):
        loss = self.inner.step(closure)
        self.count += 1
        if self.count % self.every == 0:
            self._choose()
        return loss


class Registry(type):
    """A metaclass that lists its classes."""

    known = []

    def __new__(cls, name, bases, namespace):
        made = super().__new__(cls, name, bases, namespace)
        cls.known.append(name)
        return made


class Slotted(Optimizer, metaclass=Registry):
    """With slots and a metaclass."""

    __slots__ = ("calls",)

    def __init__(self, params, lr=0.01):
        self.calls = 0
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        self.calls += 1
        for group in self.param_groups:
            torch._foreach_add_(
                group["params"], [p.grad for p in group["params"]], alpha=-group["lr"]
            )


def shapes():
    """Name and constructor of each."""
    return {
        "sign": Sign,
        "schedule_free": ScheduleFree,
        "muon": Muon,
        "eight_bit": EightBit,
        "lookahead": lambda params: Lookahead(torch.optim.SGD(params, lr=0.1)),
        "delegating": lambda params: Delegating(torch.optim.SGD(params, lr=0.1)),
        "subclass": lambda params: Sub(params, lr=0.01),
        "slotted": Slotted,
        "sgd": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
        "adamw": lambda params: torch.optim.AdamW(params, lr=0.01),
    }


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
