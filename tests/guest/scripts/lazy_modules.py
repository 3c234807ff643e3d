"""Modules that load on first use, in sys.modules, and a package with __getattr__."""
# fresh
# steps: 2

import importlib.machinery
import importlib.util
import sys
import types

loaded = []


def lazily(name):
    specification = importlib.util.find_spec(name)
    loader = importlib.util.LazyLoader(specification.loader)
    specification.loader = loader
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    loader.exec_module(module)
    return module


class Lazy(types.ModuleType):
    def __getattr__(self, name):
        loaded.append((self.__name__, name))
        raise AttributeError(name)


for name in ("transformers", "tensorflow", "cupy"):
    if importlib.util.find_spec(name) is None:
        sys.modules[name] = Lazy(name)
        sys.modules[name].__spec__ = importlib.machinery.ModuleSpec(name, None)
lazy = [lazily(name) for name in ("wave", "colorsys")]
import torch  # noqa: E402 - after them

torch.manual_seed(0)
weight = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(2):
    weight.sum().backward()
    optimizer.step()
    print(weight.sum().item())
print([type(module).__name__ for module in lazy])
asked = {}
for name, attribute in loaded:
    asked.setdefault(name, set()).add(attribute)
print({name: sorted(attributes) for name, attributes in asked.items()})
