"""A call that the recompile limit refused: its inputs, and how many variants its function has.

The program's own frames on the stack show the variants: an optimizer that calls the function with
each of its parameters, or a model with several modules of the class. No reference is kept.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from types import CodeType, FrameType
from typing import Any

from warmwatch._guard import report

_MOST_FRAMES = 200
_MOST_INPUTS = 3
_MOST = 20_000  # modules or parameters that are counted


def refused_call(code: CodeType | None, values: Any) -> dict[str, Any]:
    """``inputs``: the tensors among its arguments with their sizes. ``variants``: how many
    ``parameters`` or ``modules`` (``variants_of``) need an entry each. What is unknown is absent.

    ``values``: the arguments, by name.
    """
    try:
        if code is None or not isinstance(values, Mapping):
            return {}
        torch = sys.modules["torch"]
        arguments = {name: values.get(name) for name in code.co_varnames[: code.co_argcount]}
        tensors = {name: one for name, one in arguments.items() if isinstance(one, torch.Tensor)}
        found: dict[str, Any] = {}
        if tensors:
            known = islice(tensors.items(), _MOST_INPUTS)
            found["inputs"] = ", ".join(f"`{name}` {_sizes(one)}" for name, one in known)
        module = next(iter(arguments.values()), None)
        if isinstance(module, torch.nn.Module):
            count = _modules_like(module, torch.nn.Module)
            return {**found, "variants": count, "variants_of": "modules"} if count else found
        count = _parameter_shapes(list(tensors.values()), torch.optim.Optimizer)
        return {**found, "variants": count, "variants_of": "parameters"} if count else found
    except Exception as error:  # noqa: BLE001 - the limit is reported without it
        report("hooks.variants", error)
        return {}


def _sizes(tensor: Any) -> str:
    return " x ".join(str(int(size)) for size in tensor.shape) or "scalar"


def _modules_like(module: Any, kind: Any) -> int:
    """The modules of its class in the outermost model whose method runs; 0 if there is none."""
    models = [one for one in _callers() if isinstance(one, kind) and one is not module]
    if not models:
        return 0
    return sum(type(one) is type(module) for one in islice(models[-1].modules(), _MOST))


def _parameter_shapes(tensors: list[Any], kind: Any) -> int:
    """The kinds of parameters (shape, dtype, device) of the optimizer whose method runs.

    0 if there is none, or it does not hold any of ``tensors``.
    """
    given = {id(one) for one in tensors}
    for optimizer in _callers():
        if not isinstance(optimizer, kind):
            continue
        groups = (group["params"] for group in optimizer.param_groups)
        held = list(islice((one for group in groups for one in group), _MOST))
        if given & {id(one) for one in held}:
            return len({(one.shape, one.dtype, one.device) for one in held})
    return 0


def _callers() -> Iterator[Any]:
    """The objects whose methods are on the stack, the innermost first."""
    frame: FrameType | None = sys._getframe(2)
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return
        code = frame.f_code
        if code.co_argcount and code.co_varnames[0] == "self":
            yield frame.f_locals.get("self")
        frame = frame.f_back


def has_own_limit() -> bool:
    """Whether the compilation in progress has a limit of its own: ``torch.compile`` was called
    with one (torch 2.13 and later).
    """
    return any(getattr(one, "_recompile_limit", None) is not None for one in _callers())
