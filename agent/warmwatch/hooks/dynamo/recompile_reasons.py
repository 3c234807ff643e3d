"""All reasons of a recompile: one for each compiled entry of the frame whose guards failed.

The metrics contain only the newest entry's reason. After an evaluation that is ``grad_mode`` for
every recompile, although a guard of the training's own entry is the cause.

Only an entry that could have served the call can be the cause. One that was made for another module
of the same class, and that rejects this one, cannot. Of the others, the entry that rejects the
fewest variables is the nearest: what it rejects has changed. If every entry is for another module,
nothing has changed: this is the first compilation of a new instance. Unless each is for another
class: then a function that defines the class makes another one at each call.

Each reason has a category of a closed list, by the guard in its first line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import FunctionType
from typing import Any

from warmwatch._guard import quietly
from warmwatch.hooks.dynamo.guard_tree import Reader
from warmwatch.hooks.dynamo.instances import INSTANCES, owners
from warmwatch.hooks.last_batch import ragged_last_batch
from warmwatch.hooks.points import Installed, Listener, Replaced, first_of, look_up
from warmwatch.hooks.redaction import guard
from warmwatch.shared.guard_kinds import CLASS_OF_CALL, guard_of, kind_of, remedy_of
from warmwatch.shared.user_code import place
from warmwatch.shared.values import NEW_INSTANCE

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
        frame = args[1] if len(args) > 1 else kwargs.get("frame")
        cached = args[0] if args else next(iter(kwargs.values()), None)
        reason, is_instance = cause_first(reasons, _entries(cached), frame)
        if reason:
            category = NEW_INSTANCE if is_instance else category_of(reason)
            reason = _named_cells(reason, getattr(frame, "f_locals", {}))
            listener.recompile(reason, category, {**_where(frame), **_last_batch(reason, category)})

    def reasons_of(*args: Any, **kwargs: Any) -> Any:
        reasons = original(*args, **kwargs)
        if replaced.listening:
            quietly("hooks.recompile_reasons", report_recompile, reasons, args, kwargs)
        return reasons

    replaced.put(convert_frame, name, disable(reasons_of))
    return Installed(uninstall=replaced.undo)


_CELL = re.compile(
    r"(?P<of>\bL\['(?P<quoted>\w+)'\]|(?<![\w.])(?P<name>[A-Za-z_]\w*))\.__closure__\[(?P<at>\d+)\]"
)


def _named_cells(reason: str, values: Mapping[str, Any]) -> str:
    """``reason`` with the names of variables in the closure of a function that is an argument."""

    def named(found: re.Match[str]) -> str:
        of = values.get(found["quoted"] or found["name"])
        if isinstance(of, FunctionType) and int(found["at"]) < len(of.__code__.co_freevars):
            return f"{found['of']}.__closure__[{of.__code__.co_freevars[int(found['at'])]}]"
        return found[0]

    return _CELL.sub(named, reason)


def _where(frame: Any) -> dict[str, Any]:
    """The function that is recompiled."""
    code = getattr(frame, "f_code", None)
    return {} if code is None else place(code.co_name, code.co_filename, code.co_firstlineno)


_BATCH = re.compile(r"size mismatch at index 0\. expected (\d+), actual (\d+)")


def _last_batch(reason: str, category: str) -> dict[str, Any]:
    """``last_batch``: its size and the usual one, if the size that changed is that of the last
    batch of a DataLoader's epoch."""
    found = _BATCH.search(reason.partition("\n")[0]) if category == "shape" else None
    # the length of a sampler may be code of the user's
    known = quietly("hooks.last_batch", ragged_last_batch) if found else None
    if found is None or known is None or {int(found[1]), int(found[2])} != set(known):
        return {}
    return {"last_batch": list(known)}


def _entries(cached: Any) -> dict[str, Any]:
    """The compiled entries by compile id; torch 2.6 passes the first one of a linked list."""
    found: dict[str, Any] = {}
    one = cached if not isinstance(cached, (list, tuple)) else None
    for entry in () if one is not None or cached is None else cached:
        found[str(getattr(entry, "compile_id", ""))] = entry
    while one is not None and len(found) < _MOST_ENTRIES:
        found[str(getattr(one, "compile_id", ""))] = one
        one = getattr(one, "next", None)
    return found


# The first key of a tensor's dispatch key set is its backend: a changed backend is a changed
# device.
_BACKEND = "CPU|CUDA|Meta|XPU|MPS|XLA|HPU|IPU|VE|MTIA|PrivateUse1"
_OTHER_DEVICE = (
    rf"dispatch key set mismatch\. expected DispatchKeySet\(({_BACKEND})\b.*"
    rf"actual DispatchKeySet\((?!\1\b)({_BACKEND})\b"
)

# First match wins. The patterns match Dynamo's guards (torch 2.6 to 2.15).
_PATTERNS: tuple[tuple[str, str], ...] = (
    (r"\._modules\[.*\.(?!training\b)\w+ == -?\d", "python_value"),
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
_FRAME_ID = re.compile(r"\s*(?P<id>!?[\d/_]+):\s")
_NEXT_ENTRY = re.compile(r"\n(?=\s*!?\d[\d/_]*:\s)")


# Every guard set begins with the global state. A line about it belongs to an entry for another
# mode, such as an evaluation's. The failed guard of the entry for the present mode is the cause.
_OF_ANOTHER_MODE = ("grad_mode", "autocast", "global_state")
_ENOUGH = 8  # reasons; redaction uses no more, and a frame can have thousands of entries
_MOST_ENTRIES = 64  # that are compared


def most_specific_first(reasons: list[str]) -> str:
    """Reasons, one for each compiled entry that did not fit; the most specific one first."""
    return cause_first(reasons, {}, None)[0]


@dataclass(frozen=True, kw_only=True)
class _Failed:
    """A compiled entry that did not fit.

    Attributes:
        text: PyTorch's reason. rejected: the variables that its guards reject, ``None`` if unknown.
        of_other: those that held another module when it was compiled; ``None`` if the frame has
        no module. of_mode: it is for another mode, such as evaluation.
    """

    text: str
    rejected: frozenset[str] | None
    of_other: frozenset[str] | None
    of_mode: bool

    @property
    def own(self) -> bool:
        return not self.of_other

    @property
    def excluded(self) -> bool:
        """It is for another module, and rejects this one."""
        if not self.of_other:
            return False
        rejected = self.rejected or frozenset()
        return bool(self.of_other & rejected) or self.about(self.of_other)

    def about(self, names: frozenset[str]) -> bool:
        """Whether its first failed guard is about one of the variables."""
        first = guard(self.text.partition("\n")[0]).partition("  # ")[0]
        return any(re.search(rf"(?<![\w.]){re.escape(name)}\b", first) for name in names)


def cause_first(reasons: Sequence[str], entries: Mapping[str, Any], frame: Any) -> tuple[str, bool]:
    """All reasons, that of the cause first; and whether it is the first compilation of an instance.

    PyTorch's text stays unchanged: some reasons have several lines, with the user's stack.
    """
    failed = list(_failed(reasons, entries, frame))
    fitting = [one for one in failed if not one.excluded]
    if not fitting:  # nothing has changed
        names = frozenset[str]().union(*(one.of_other or () for one in failed))
        failed.sort(key=lambda one: not one.about(names))
        is_instance = any(remedy_of(guard_of(one.text)) != CLASS_OF_CALL for one in failed)
        return "\n".join(one.text for one in failed[:_ENOUGH]), is_instance
    known = [one.rejected for one in fitting if one.rejected and not one.of_mode]
    nearest = sorted(fitting, key=lambda one: (one.of_mode, _is_farther(one, known), not one.own))
    others = [one for one in failed if one.excluded]
    return "\n".join(one.text for one in [*nearest, *others][:_ENOUGH]), False


def _failed(reasons: Sequence[str], entries: Mapping[str, Any], frame: Any) -> list[_Failed]:
    values, names = getattr(frame, "f_locals", {}), getattr(frame, "f_globals", {})
    code: Any = getattr(frame, "f_code", None)
    reader = Reader(values, names)
    has_module = bool(owners(values))
    most = _MOST_ENTRIES if has_module else _ENOUGH  # an older entry may be that of this module
    found: list[_Failed] = []
    is_found = False  # no entry is nearer, so the guards of the others need not be read
    for text in (entry for one in reasons for entry in _NEXT_ENTRY.split(one.strip())):
        id = (_FRAME_ID.match(text) or {"id": ""})["id"]
        entry = entries.get(id)
        one = _Failed(
            text=text.strip(),
            rejected=None if entry is None or is_found else reader.rejected(entry),
            of_other=INSTANCES.of_other(code, id, values) if has_module and entry else None,
            of_mode=category_of(text) in _OF_ANOTHER_MODE,
        )
        found.append(one)
        most -= not one.of_mode
        if most == 0:
            break
        is_found |= one.own and not one.of_mode and len(one.rejected or ()) == 1
    return found


def _is_farther(one: _Failed, known: Sequence[frozenset[str]]) -> bool:
    """Whether another entry rejects only a part of what this one rejects."""
    return one.rejected is not None and any(rejected < one.rejected for rejected in known)


@lru_cache(maxsize=64)  # one recompile needs that of a reason several times
def category_of(reason: str) -> str:
    """The category of a recompile reason: that of the guard in its first line.

    Ignores the user's strings and the quoted line of code, which may contain any text.
    """
    first = _FRAME.sub("", guard(reason.strip().partition("\n")[0])).partition("  # ")[0]
    if known := kind_of(guard_of(first)):
        return known[0].category
    for pattern, category in _COMPILED:
        if pattern.search(first):
            return category
    return "other"
