"""A call that the recompile limit refused: its inputs, and how many variants its function has.

PyTorch's frames on the stack show the variants: of an optimizer that calls the function with each
of its parameters, or of a model with several modules of the class. No reference is kept. Frames of
the program are not read: up to Python 3.12, ``frame.f_locals`` is the dict that ``locals()``
returned there, is filled again, and keeps every variable alive until the frame ends.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from types import CodeType, FrameType
from typing import Any

from warmwatch._guard import report
from warmwatch.hooks.dynamo.targets import INSTANCES

_MOST_FRAMES = 200
# Their functions around the call of a module or a step, and a compilation, end with it.
_AROUND = ("torch.nn.modules.module", "torch.optim.optimizer")
_COMPILES = ("torch._dynamo.convert_frame",)
_MOST_INPUTS = 3
_MOST = 20_000  # modules or parameters that are counted


def refused_call(code: CodeType | None, values: Any) -> dict[str, Any]:
    """``inputs``: the tensors among its arguments with their sizes. ``variants``: how many
    ``parameters`` or ``modules`` (``variants_of``) need an entry each, or how many ``functions``
    that one wrapper calls share its entries. What is unknown is absent.

    ``values``: the arguments, by name.
    """
    try:
        if code is None or not isinstance(values, Mapping):
            return {}
        torch = sys.modules["torch"]
        # a subclass or a mode of the program would see each attribute that is read
        with torch._C.DisableTorchFunction():
            return _refused(torch, code, values)
    except Exception as error:  # noqa: BLE001 - the limit is reported without it
        report("hooks.variants", error)
        return {}


def _refused(torch: Any, code: CodeType, values: Mapping[str, Any]) -> dict[str, Any]:
    arguments = {name: values.get(name) for name in code.co_varnames[: code.co_argcount]}
    tensors = dict(islice(tensors_in(arguments, torch.Tensor), _MOST))
    fields: dict[str, Any] = {}
    if sized := {name: value for name, value in tensors.items() if value.dim()} or tensors:
        item = islice(sized.items(), _MOST_INPUTS)
        fields["inputs"] = ", ".join(f"`{name}` {_sizes(value)}" for name, value in item)
    if (count := INSTANCES.called_by(code)) > 1:
        return {**fields, "variants": count, "variants_of": "functions"}
    module = next(iter(arguments.values()), None)
    if isinstance(module, torch.nn.Module):
        count = _modules_like(module, torch.nn.Module)
        return {**fields, "variants": count, "variants_of": "modules"} if count else fields
    count = _parameter_shapes(list(tensors.values()), torch.optim.Optimizer)
    return {**fields, "variants": count, "variants_of": "parameters"} if count else fields


def tensors_in(values: Mapping[str, Any], kind: type) -> Iterator[tuple[str, Any]]:
    """The tensors among ``values`` and in the lists, tuples and dicts among them, with the names
    that PyTorch's guards have for them. The keys of a dict may be texts of the user.
    """
    for name, value in values.items():
        if type(value) in (list, tuple):
            items = [(f"{name}[{at}]", item) for at, item in enumerate(value[:_MOST])]
        elif type(value) is dict:
            items = [(f"{name}['...']", item) for item in islice(value.values(), _MOST)]
        else:
            items = [(name, value)]
        # `isinstance` would run code of the program: its `__class__`
        yield from ((path, item) for path, item in items if issubclass(type(item), kind))


def _sizes(tensor: Any) -> str:
    return " x ".join(str(int(size)) for size in tensor.shape) or "scalar"


def _modules_like(module: Any, kind: Any) -> int:
    """The modules of its class in the outermost model whose method runs; 0 if there is none."""
    models = [caller for caller in _callers() if isinstance(caller, kind) and caller is not module]
    if not models:
        return 0
    return sum(type(value) is type(module) for value in islice(models[-1].modules(), _MOST))


def _parameter_shapes(tensors: list[Any], kind: Any) -> int:
    """The kinds of parameters (shape, dtype, device) of the optimizer whose method runs.

    0 if there is none, or it does not hold any of ``tensors``.
    """
    given = {id(tensor) for tensor in tensors}
    for optimizer in _callers():
        if not isinstance(optimizer, kind):
            continue
        groups = (group["params"] for group in optimizer.param_groups)
        held = list(islice((value for group in groups for value in group), _MOST))
        if given & {id(value) for value in held}:
            return len({(value.shape, value.dtype, value.device) for value in held})
    return 0


def _callers(modules: Sequence[str] = _AROUND) -> Iterator[Any]:
    """The objects for which functions of these modules are on the stack, the innermost first."""
    frame: FrameType | None = sys._getframe(2)
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return
        if frame.f_globals.get("__name__") in modules and "self" in frame.f_code.co_varnames:
            yield frame.f_locals.get("self")
        frame = frame.f_back


def has_own_limit() -> bool:
    """Whether the compilation in progress has a limit of its own: ``torch.compile`` was called
    with one (torch 2.13 and later).
    """
    compiles = _callers(_COMPILES)
    return any(getattr(value, "_recompile_limit", None) is not None for value in compiles)
