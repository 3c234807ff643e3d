"""Imposes a mode of ``torch.compile``, for ``warmwatch modes``.

It reports nothing, and is installed only if ``WARMWATCH_MODE`` names a mode, which only that
command sets. Every way to call ``torch.compile`` ends in ``torch._dynamo.optimize``: on a function,
as a decorator, ``Module.compile``, ``torch.compiler.compile``, inside a library. One argument is
an object that holds mode and options (torch 2.6 to 2.15). The hook replaces it with the object that
PyTorch makes for the mode alone. Backends other than Inductor have no modes and stay as they are.
What cannot be replaced stays too, with a warning; the training goes on.

In addition to PyTorch's modes there are three variants of the default mode. ``dynamic`` and
``static`` set ``dynamic=True`` and ``dynamic=False``. ``regional`` compiles each repeated block of
a module separately, as ``Module.compile`` of each block does. The module itself stays as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from warmwatch._guard import warn_once
from warmwatch.hooks.points import Install, Installed, Listener, Replaced, look_up, untraced

REGIONAL = "regional"
_DYNAMIC = {"dynamic": True, "static": False}


def imposing(mode: str) -> Install:
    """The install function for ``mode``. Its hook must be the outermost: others see the result."""
    return partial(_install, mode)


def _install(mode: str, listener: Listener) -> Installed:  # noqa: ARG001 - as every install
    with look_up():
        import torch

        dynamo = torch._dynamo
        inductor, original = torch._TorchCompileInductorWrapper, dynamo.optimize
    imposes = True

    def with_mode(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return _with_mode(mode, inductor, args, kwargs)
        except Exception as error:
            warn_once(f"{_not_imposed(mode)}: {error!r}")
            raise

    def optimize(*args: Any, **kwargs: Any) -> Any:
        if imposes:
            changed = untraced("hooks.imposed_mode", with_mode, args, kwargs)
            args, kwargs = changed or (args, kwargs)
        if imposes and mode == REGIONAL:
            return _by_region(torch.nn, lambda: original(*args, **kwargs))
        return original(*args, **kwargs)

    replaced = Replaced()

    def uninstall() -> None:
        nonlocal imposes
        imposes = False
        replaced.undo()

    replaced.put(dynamo, "optimize", optimize)
    return Installed(uninstall=uninstall)


def _with_mode(
    mode: str, inductor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of one call, with ``mode`` if they are Inductor's."""
    given = args[0] if args else kwargs.get("backend")
    if not isinstance(given, inductor):
        name = getattr(given, "compiler_name", None) or getattr(given, "__name__", given)
        backend = repr(str(name)[:80])
        warn_once(f"{_not_imposed(mode)} of a call with the backend {backend}, which has none")
        return args, kwargs
    dynamic = _DYNAMIC.get(mode, given.dynamic)
    of_torch = "default" if mode == REGIONAL or mode in _DYNAMIC else mode
    made = type(given)(of_torch, None, dynamic)
    if hasattr(given, "name"):
        made.name = given.name
    if lost := _options_of(given.config):
        warn_once(f"the mode {mode!r} takes the place of a call's options: {', '.join(lost)[:200]}")
    if mode in _DYNAMIC:
        kwargs = {**kwargs, "dynamic": dynamic}
    return ((made, *args[1:]), kwargs) if args else (args, {**kwargs, "backend": made})


def _by_region(nn: Any, optimized: Callable[[], Any]) -> Callable[[Any], Any]:
    """Compiles the repeated blocks of a module; anything without such blocks as a whole."""

    def compile(model: Any) -> Any:
        module = model if isinstance(model, nn.Module) else getattr(model, "__self__", None)
        blocks = list(repeated_blocks(nn, module)) if isinstance(module, nn.Module) else []
        if not blocks:
            warn_once("regional: a call of torch.compile has no repeated blocks; compiled whole")
            return optimized()(model)
        for block in blocks:
            block._compiled_call_impl = optimized()(block._call_impl)
        return model

    return compile


def repeated_blocks(nn: Any, module: Any) -> Iterator[Any]:
    """The outermost modules that stand two or more times, by class, in a list within ``module``.

    Modules without parts (``Linear``, ``ReLU``) are no blocks. Without such a list, the blocks are
    modules of one class among the parts of one module.
    """
    lists = (nn.ModuleList, nn.Sequential, nn.ModuleDict)
    values = list(_repeated(module, lists, lists))
    return iter(values or _repeated(module, (nn.Module,), lists))


def _repeated(module: Any, parents: tuple[Any, ...], containers: tuple[Any, ...]) -> Iterator[Any]:
    parts = list(dict.fromkeys(module.children()))
    count: dict[Any, int] = {}
    for part in parts:
        if not isinstance(part, containers) and next(part.children(), None) is not None:
            count[type(part)] = count.get(type(part), 0) + 1
    for part in parts:
        if isinstance(module, parents) and count.get(type(part), 0) > 1:
            yield part
        else:
            yield from _repeated(part, parents, containers)


def _options_of(config: dict[str, Any]) -> list[str]:
    """Names of the options among these settings that belong to no mode."""
    if not config:
        return []
    inductor = sys.modules["torch._inductor"]  # imported, if any option is set
    of_modes = {name for sets in inductor.list_mode_options().values() for name in sets}
    return sorted(str(name) for name in config.keys() - of_modes)


def _not_imposed(mode: str) -> str:
    return f"the mode {mode!r} could not take the place"
