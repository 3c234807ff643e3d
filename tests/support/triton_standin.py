"""A Triton in a few lines: the functions that the agent wraps, called in Triton's own order.

Only so that the hook is tested where no Triton is installed. ``tests/process/test_triton.py`` runs
the real one where it is.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class ASTSource:
    """What is compiled."""

    def __init__(self, fn: Any, signature: Any, constants: Any) -> None:
        self.fn, self.signature, self.constants, self.attrs = fn, signature, constants, {}

    def make_ir(self) -> None:
        """The first thing that is done for a kernel that the cache has not."""


class JITFunction:
    """A kernel. ``on_disk``: what Triton's cache has."""

    on_disk: set[str]

    def __init__(self, fn: Any) -> None:
        self.fn, self.arg_names, self.cache = fn, ("x", "n", "BLOCK"), set()

    def _do_compile(self, source: Any, options: Any) -> None:
        self.compile(source, options=options)

    def run(self, x: Any, n: int, BLOCK: int, num_warps: int = 4) -> None:  # noqa: ARG002, N803
        if not hasattr(self, "compile"):
            self.compile = sys.modules["triton.compiler"].compile
        key = (x.dtype, BLOCK, num_warps)
        if key not in self.cache:
            signature = {"x": f"*{x.dtype}", "n": "i32", "BLOCK": "constexpr"}
            self._do_compile(ASTSource(self, signature, {(2,): BLOCK}), {"num_warps": num_warps})
            self.cache.add(key)
            sys.modules["triton.runtime.build"]._build("launcher")


class Autotuner:
    """A kernel and the block sizes that are tried for each ``n``."""

    def __init__(self, fn: JITFunction, blocks: tuple[int, ...]) -> None:
        self.fn, self.base_fn, self.configs = fn, fn.fn, blocks
        self.keys, self.arg_names, self.best = ["n"], fn.arg_names, {}

    def prune_configs(self, kwargs: Any) -> tuple[int, ...]:  # noqa: ARG002
        return self.configs

    def _bench(self, *args: Any, config: int) -> float:
        self.fn.run(*args, BLOCK=config)
        return 1.0

    def run(self, x: Any, n: int) -> None:
        args = (x, n)
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        if n not in self.best:
            timings = {c: self._bench(*args, config=c) for c in self.prune_configs({})}
            self.best[n] = min(timings)
        self.fn.run(*args, BLOCK=self.best[n])


def compile(src: ASTSource, target: Any = None, options: Any = None) -> str:
    """As Triton's: what is in the cache is loaded; of a block size of 0 nothing comes."""
    (block,) = src.constants.values()
    name = f"{src.signature['x']} {block} {(options or {}).get('num_warps')}"
    if name not in JITFunction.on_disk:
        src.make_ir()
        if not block:
            raise ValueError("a kernel that does not compile")
        JITFunction.on_disk.add(name)
    return name


def install(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Put it where Triton would be. What the hook wraps is there afresh each time."""
    names = ("", ".compiler", ".compiler.compiler", ".runtime", ".runtime.autotuner")
    modules = {}
    for name in (*names, ".runtime.jit", ".runtime.build"):
        modules[name] = ModuleType(f"triton{name}")
        monkeypatch.setitem(sys.modules, f"triton{name}", modules[name])
    fresh = {
        one.__name__: type(one.__name__, (), dict(vars(one)))
        for one in (ASTSource, JITFunction, Autotuner)
    }
    monkeypatch.setitem(globals(), "ASTSource", fresh["ASTSource"])
    monkeypatch.setitem(globals(), "JITFunction", fresh["JITFunction"])
    modules[""].compiler = modules[".compiler"]
    modules[".compiler"].compile = compile
    modules[".compiler.compiler"].ASTSource = fresh["ASTSource"]
    modules[".runtime.autotuner"].Autotuner = fresh["Autotuner"]
    modules[".runtime.jit"].JITFunction = fresh["JITFunction"]
    modules[".runtime.build"]._build = lambda name: name
    fresh["JITFunction"].on_disk = set()
    return SimpleNamespace(**fresh, compiler=modules[".compiler"], build=modules[".runtime.build"])
