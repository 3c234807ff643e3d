"""Dynamo traces the original of each method that the agent has replaced, found by its attribute.

From torch 2.12 on, Dynamo also notes that it went through that attribute. If the original breaks
the graph, the compiled code calls ``method._torchdynamo_inline()``, without the object, which
raises. So this hook hands Dynamo the originals themselves where it looks up methods.
"""

from __future__ import annotations

from typing import Any

from warmwatch.hooks.points import Installed, Listener, Replaced, look_up, original_of

_SINCE = (2, 12)


def install(listener: Listener) -> Installed:  # noqa: ARG001 - the signature of every install
    with look_up():
        import torch

        variables = torch._dynamo.variables
        object_variable = variables.user_defined.UserDefinedObjectVariable
        super_variable = variables.misc.SuperVariable
        if torch.__version__ < _SINCE:
            return Installed()
        of_class = object_variable.resolve_type_attr
        of_super = super_variable._resolved_getattr_and_source
    replaced = Replaced()

    def resolve_type_attr(variable: Any, tx: Any, name: str, value: Any, source: Any) -> Any:
        return of_class(variable, tx, name, original_of(value), source)

    def _resolved_getattr_and_source(variable: Any, tx: Any, name: str) -> tuple[Any, Any]:
        value, source = of_super(variable, tx, name)
        return original_of(value), source

    replaced.put_all(
        [
            (object_variable, resolve_type_attr.__name__, resolve_type_attr),
            (super_variable, _resolved_getattr_and_source.__name__, _resolved_getattr_and_source),
        ]
    )
    return Installed(uninstall=replaced.undo)
