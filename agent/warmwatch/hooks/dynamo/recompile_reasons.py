"""All reasons of a recompile: one for each compiled entry of the frame whose guards failed.

The metrics contain only the newest entry's reason. After an evaluation that is ``grad_mode`` for
every recompile, although a guard of the training's own entry is the cause.

Each reason has a category of a closed list, by the guard in its first line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from warmwatch._guard import quietly
from warmwatch.hooks.points import Installed, Listener, Replaced, first_of, look_up
from warmwatch.hooks.redaction import guard
from warmwatch.shared.user_code import place

# Names of the function, newest first. Torch 2.6 has the second; both return the same reasons.
NAMES = (
    "get_and_maybe_log_recompilation_reasons",
    "get_and_maybe_log_recompilation_reason",
)


def install(listener: Listener) -> Installed:
    with look_up():
        from torch._dynamo import convert_frame
        from torch.compiler import disable

        name = first_of(convert_frame, NAMES)
        original = getattr(convert_frame, name)
    replaced = Replaced()

    def report_recompile(reasons: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if reason := most_specific_first(reasons):
            listener.recompile(reason, category_of(reason), _where(args, kwargs))

    def reasons_of(*args: Any, **kwargs: Any) -> Any:
        reasons = original(*args, **kwargs)
        if replaced.listening:
            quietly("hooks.recompile_reasons", report_recompile, reasons, args, kwargs)
        return reasons

    replaced.put(convert_frame, name, disable(reasons_of))
    return Installed(uninstall=replaced.undo)


def _where(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The function that is recompiled; the frame is the second argument in every version."""
    frame = args[1] if len(args) > 1 else kwargs.get("frame")
    code = getattr(frame, "f_code", None)
    return {} if code is None else place(code.co_name, code.co_filename, code.co_firstlineno)


# The first key of a tensor's dispatch key set is its backend: a changed backend is a changed
# device.
_BACKEND = "CPU|CUDA|Meta|XPU|MPS|XLA|HPU|IPU|VE|MTIA|PrivateUse1"
_OTHER_DEVICE = (
    rf"dispatch key set mismatch\. expected DispatchKeySet\(({_BACKEND})\b.*"
    rf"actual DispatchKeySet\((?!\1\b)({_BACKEND})\b"
)

# First match wins. The patterns match Dynamo's guards (torch 2.6 to 2.15).
_PATTERNS: tuple[tuple[str, str], ...] = (
    (r"grad_mode|is_inference|inference_mode", "grad_mode"),
    (r"autocast|dispatch key set mismatch.*Autocast", "autocast"),
    (r"requires_grad", "requires_grad"),
    (r"dtype mismatch|default_dtype|\.dtype ", "dtype"),
    (r"device mismatch|device index|\.device ", "device"),
    (_OTHER_DEVICE, "device"),
    (r"^expected type of ", "object_identity"),
    (r"^getattr failed on source ", "python_value"),
    (r"GLOBAL_STATE|deterministic|num_threads|torch_function", "global_state"),
    (
        r"size mismatch|stride mismatch|rank mismatch|\.size\(\)|\.stride\(\)|\.shape",
        "shape",
    ),
    (r"^\s*[\d\s+*/%()-]*\b(Eq|Ne|Mod|FloorDiv|Max|Min)\(", "shape"),
    (
        r"\.training|_modules|_parameters|_buffers|_hooks|nn_module|___check_obj_id\(.*\.forward",
        "module_state",
    ),
    (r"___check_obj_id|___check_type_id|_id\(| is ", "object_identity"),
    (r"==|!=|<=|>=|<|>|len\(|___dict|not in | in ", "python_value"),
)
_COMPILED = tuple((re.compile(pattern), category) for pattern, category in _PATTERNS)
_FRAME = re.compile(r"^\s*!?[\d/_]+:\s*")
_NEXT_ENTRY = re.compile(r"\n(?=\s*!?\d[\d/_]*:\s)")


# Every guard set begins with the global state. A line about it belongs to an entry for another
# mode, such as an evaluation's. The failed guard of the entry for the present mode is the cause.
_OF_ANOTHER_MODE = ("grad_mode", "autocast", "global_state")
_ENOUGH = 8  # specific reasons; redaction uses no more, and a frame can have thousands of entries


def most_specific_first(reasons: list[str]) -> str:
    """Reasons, one for each compiled entry that did not fit; the most specific one first.

    PyTorch's text stays unchanged: some reasons have several lines, with the user's stack. Stops
    after the first few specific ones, so that a recompile does not cost more with each before it.
    """
    specific: list[str] = []
    others: list[str] = []
    for entry in (entry for text in reasons for entry in _NEXT_ENTRY.split(text.strip())):
        of_another_mode = category_of(entry) in _OF_ANOTHER_MODE
        (others if of_another_mode else specific).append(entry.strip())
        if len(specific) == _ENOUGH:
            break
    return "\n".join(specific + others)


@lru_cache(maxsize=64)  # one recompile needs that of a reason several times
def category_of(reason: str) -> str:
    """The category of a recompile reason: that of the guard in its first line.

    Ignores the user's strings and the quoted line of code, which may contain any text.
    """
    first = _FRAME.sub("", guard(reason.strip().partition("\n")[0])).partition("  # ")[0]
    for pattern, category in _COMPILED:
        if pattern.search(first):
            return category
    return "other"
