"""The user's code: its place, the nearest user frame on a stack, and a hash to compare two runs.

Library code is PyTorch, the agent, the standard library and everything in a ``site-packages``
folder. Only names of functions, base names of files and lines are returned. Every walk is bounded.

Hashes are equal in every process and on every machine with the same minor version of Python. A hash
does not reveal its input, but a guessed value can be tested. So a function's hash covers that a
text exists, never the text. No object of the program is passed to ``repr``.

Around a step of an optimizer, at run time and while Dynamo traces it, PyTorch wraps the ``step`` of
every optimizer class in a function. What marks a step is called by that wrapper, or by code that
Dynamo compiled from it and from what called it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import CodeType, FrameType, TracebackType
from typing import Any

from warmwatch.shared.values import blake2b, hashed

_INSTALLED = ("/site-packages/", "/dist-packages/")
_STANDARD = f"{os.path.dirname(os.__file__)}/"
_GENERATED = (
    *("<frozen ", "<eval_with_key>", "<__array_function__ "),
    *("<@beartype(", "<attrs generated ", "<decorator-gen-"),
)
_PACKAGES = ("torch", "warmwatch", "triton")  # regardless of where they are installed
_MOST_FRAMES = 200
_MOST_RAISED = 5_000  # an endless recursion has 1,000 frames, unless the limit was raised


def place(name: str | None, file: str | None, line: int | None) -> dict[str, Any]:
    """The place of the user's function. Only the base name of its file leaves the process."""
    return {"name": name, "file": file.rpartition("/")[2] if file else None, "line": line}


def is_library(file: str, module: Any = None) -> bool:
    """Whether the code in ``file``, of the module named ``module``, is a library's."""
    if isinstance(module, str) and module.partition(".")[0] in _PACKAGES:
        return True
    if any(folder in file for folder in _INSTALLED) or file.startswith(_GENERATED):
        return True
    return file.startswith(_STANDARD)


@lru_cache(maxsize=1024)
def is_standard(file: str) -> bool:
    """Whether ``file`` is of the standard library, or of Dynamo's code in place of it."""
    if any(folder in file for folder in _INSTALLED):
        return "/torch/_dynamo/polyfills/" in file
    return file.startswith((_STANDARD, "<frozen "))


@lru_cache(maxsize=1024)
def is_pytorch(file: str) -> bool:
    return any(f"{folder}torch/" in file for folder in _INSTALLED)


def nearest(frame: FrameType | None) -> dict[str, Any] | None:
    """The user frame at ``frame`` or nearest above it; ``None`` if there is none."""
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return None
        if not _in_library(frame):
            return place(frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None


def innermost(raised: TracebackType | None) -> dict[str, Any] | None:
    """The user frame nearest to where an exception was raised; ``None`` if there is none."""
    result: TracebackType | None = None
    for _ in range(_MOST_RAISED):
        if raised is None:
            break
        if not _in_library(raised.tb_frame):
            result = raised
        raised = raised.tb_next
    if result is None:
        return None
    code = result.tb_frame.f_code
    return place(code.co_name, code.co_filename, result.tb_lineno)


def _in_library(frame: FrameType) -> bool:
    return is_library(frame.f_code.co_filename, frame.f_globals.get("__name__"))


_CODE, _VALUE = hashed(size=6), hashed(size=3)  # copied: cheaper than new ones
_DEEPEST = 16
_MOST = 10_000  # constants, entries: of a table written out in code, only the beginning counts
_MOST_PARTS = 20_000  # of all nested parts, since the training waits; only the beginning counts
_LONG = 4_096  # bits: Python refuses to write much longer numbers out in decimals
_NUMBERS = (bool, int, float, complex, type(None), type(Ellipsis))


def of_code(code: CodeType) -> str:
    """Hash of a function and its inner functions: bytecode, names, numbers; no lines or texts."""
    return _digest(_of_code(code, 0, _budget()), _CODE.copy())


def of_value(value: Any) -> str:
    """Hash of a setting's value; of a program's object only its type's name, or its own name."""
    return _digest(_parts(value, 0, _budget(), texts=True), _VALUE.copy())


def _budget() -> Iterator[int]:
    """Yields once for each part that may be hashed."""
    return iter(range(_MOST_PARTS))


def _digest(parts: Iterator[bytes], made: blake2b) -> str:
    for part in parts:
        made.update(len(part).to_bytes(4, "little") + part)
    return made.hexdigest()


def _of_code(code: CodeType, depth: int, budget: Iterator[int]) -> Iterator[bytes]:
    yield code.co_code
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
    for fields in (counts, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars):
        yield repr(fields).encode("utf-8", "backslashreplace")
    yield from _parts(code.co_consts, depth, budget, texts=False)


def _parts(value: Any, depth: int, budget: Iterator[int], *, texts: bool) -> Iterator[bytes]:
    if next(budget, None) is None:
        return
    kind = type(value)
    yield kind.__name__.encode("utf-8", "backslashreplace")
    if depth > _DEEPEST:
        return
    if kind is int and value.bit_length() > _LONG:
        yield hex(value).encode()
    elif kind in _NUMBERS or (texts and kind in (str, bytes)):
        yield repr(value).encode("utf-8", "backslashreplace")
    elif kind is CodeType:
        yield from _of_code(value, depth + 1, budget)
    elif kind in (tuple, list):
        for item in value[:_MOST]:
            yield from _parts(item, depth + 1, budget, texts=texts)
    elif kind in (frozenset, set, dict):
        entries = value.items() if kind is dict else value
        yield from sorted(_joined(entry, depth + 1, budget, texts=texts) for entry in entries)[
            :_MOST
        ]
    elif texts:
        named = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        yield repr([name for name in named if type(name) is str]).encode(
            "utf-8", "backslashreplace"
        )


def _joined(value: Any, depth: int, budget: Iterator[int], *, texts: bool) -> bytes:
    """One entry of an unordered collection."""
    return b"\0".join(_parts(value, depth, budget, texts=texts))


_MODULE = "torch.optim.optimizer"
_RESUMES = re.compile(r"torch_dynamo_resume_in_(.*)_at_\d+$")

_on_traced_step: Callable[[Any], None] | None = None


def set_traced_step_hook(hook: Callable[[Any], None] | None) -> None:
    """Call ``hook`` for each step that compiled code contains; ``None``: call nothing."""
    global _on_traced_step
    _on_traced_step = hook


def count_traced_step(optimizer: Any) -> None:
    """Called by the code that Dynamo compiles, after the graph that contains the step."""
    if (hook := _on_traced_step) is not None:
        hook(optimizer)


def wrapper_name(code: CodeType, names: Mapping[str, Any]) -> tuple[str, bool] | None:
    """The name of PyTorch's function around ``step``, and whether ``code`` resumes it.

    ``names``: the globals of ``code``. ``None``: it is the code of another function.
    """
    if names.get("__name__") != _MODULE:
        return None
    resumes = _RESUMES.match(code.co_name)
    return (resumes[1], True) if resumes else (code.co_name, False)


def inside_step() -> bool:
    """Whether the ``step`` that just ended was called by another ``step``.

    PyTorch's function around ``step`` is on the stack once, and twice if this ``step`` is nested.
    For a compiled ``step`` Dynamo makes two frames, one of which resumes the other: these count
    once. Where Dynamo has inlined that function, it is not on the stack for this ``step``.
    """
    frame: FrameType | None = sys._getframe(1)
    around, resumed = None, False
    while frame is not None:
        pair = wrapper_name(frame.f_code, frame.f_globals)
        if pair is not None:
            function, resumes = pair
            if around is None:
                around = function
            elif (function == around or not around) and not resumed:
                return True
            resumed = resumes
        else:
            resumed = False
        caller = frame.f_back
        if frame.f_code is count_traced_step.__code__ and caller is not None:
            inlined = wrapper_name(caller.f_code, caller.f_globals) is None
            around = "" if inlined else None
        frame = caller
    return False
