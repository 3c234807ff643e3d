"""Separates user code from library code: finds the nearest user frame on a stack.

Library code is PyTorch, the agent, the standard library and everything in a ``site-packages``
folder. Only names of functions, base names of files and lines are returned. Every walk is bounded.
"""

from __future__ import annotations

import os
from types import FrameType, TracebackType
from typing import Any

_INSTALLED = ("/site-packages/", "/dist-packages/")
_STANDARD = f"{os.path.dirname(os.__file__)}/"
_GENERATED = ("<frozen ", "<eval_with_key>", "<__array_function__ ")
_PACKAGES = ("torch", "warmwatch", "triton")  # regardless of where they are installed
_MOST_FRAMES = 200
_MOST_RAISED = 5_000  # an endless recursion has 1,000 frames, unless the limit was raised


def is_library(file: str, module: Any = None) -> bool:
    """Whether the code in ``file``, of the module named ``module``, is a library's."""
    if isinstance(module, str) and module.partition(".")[0] in _PACKAGES:
        return True
    if any(folder in file for folder in _INSTALLED) or file.startswith(_GENERATED):
        return True
    return file.startswith(_STANDARD)


def nearest(frame: FrameType | None) -> dict[str, Any] | None:
    """The user frame at ``frame`` or nearest above it; ``None`` if there is none."""
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return None
        if not _is_librarys(frame):
            return _place(frame, frame.f_lineno)
        frame = frame.f_back
    return None


def innermost(raised: TracebackType | None) -> dict[str, Any] | None:
    """The user frame nearest to where an exception was raised; ``None`` if there is none."""
    found: TracebackType | None = None
    for _ in range(_MOST_RAISED):
        if raised is None:
            break
        if not _is_librarys(raised.tb_frame):
            found = raised
        raised = raised.tb_next
    return None if found is None else _place(found.tb_frame, found.tb_lineno)


def _is_librarys(frame: FrameType) -> bool:
    return is_library(frame.f_code.co_filename, frame.f_globals.get("__name__"))


def _place(frame: FrameType, line: int | None) -> dict[str, Any]:
    code = frame.f_code
    return {"name": code.co_name, "file": code.co_filename.rpartition("/")[2], "line": line}
