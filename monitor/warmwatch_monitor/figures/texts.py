"""The texts below fields and constants. Python drops them, so the source is parsed."""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache

from msgspec import Struct


def field_texts(struct: type) -> dict[str, str]:
    """The text below each field of ``struct``, inherited fields included."""
    values: dict[str, str] = {}
    for item in reversed(struct.__mro__):
        if issubclass(item, Struct) and item is not Struct:
            values.update(texts_below(item.__module__)[item.__name__])
    return values


@cache
def texts_below(module: str) -> dict[str, dict[str, str]]:
    """The text below each field or constant of a module's classes, by class."""
    groups: dict[str, dict[str, str]] = {}
    for struct in ast.parse(inspect.getsource(sys.modules[module])).body:
        if not isinstance(struct, ast.ClassDef):
            continue
        docs = groups.setdefault(struct.name, {})
        for field, after in zip(struct.body, struct.body[1:], strict=False):
            match field, after:
                case (
                    ast.AnnAssign(target=ast.Name(id=key)) | ast.Assign(targets=[ast.Name(id=key)]),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    docs[key] = " ".join(text.split())
    return groups
