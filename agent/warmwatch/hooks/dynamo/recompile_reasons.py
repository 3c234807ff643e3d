"""All reasons of a recompile: one for each compiled entry of the frame whose guards failed.

The metrics contain only the newest entry's reason. After an evaluation that is ``grad_mode`` for
every recompile, although a guard of the training's own entry is the cause.

Only an entry that could have served the call can be the cause. One that was made for another module
of the same class, and that rejects this one, cannot. Of the others, the entry that rejects the
fewest variables is the nearest: what it rejects has changed. If every entry is for another module,
nothing has changed: this is the first compilation of a new instance. Unless each is for another
class: then a function that defines the class makes another one at each call.

Where a model runs in two ways in turn (``requires_grad`` of an input, ``training``), or a function
is called with one parameter after another, a change makes each of them recompile. Then one entry
rejects only the way or the parameter, and another only what changed: the cause is what no older
entry accepts.

Each reason has a category of a closed list, by the guard in its first line.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from types import CellType, CodeType, FunctionType
from typing import Any, NamedTuple

from warmwatch._guard import quietly
from warmwatch.hooks.dynamo.guard_tree import Reader, own_attribute
from warmwatch.hooks.dynamo.targets import INSTANCES, owners, wrapped_by
from warmwatch.hooks.dynamo.variants import tensors_in
from warmwatch.hooks.last_batch import ragged_last_batch
from warmwatch.hooks.points import Installed, Listener, Replaced, first_of, look_up, untraced
from warmwatch.hooks.redaction import guard
from warmwatch.shared.guard_kinds import kind_of, remedy_of
from warmwatch.shared.guard_remedies import CLASS_OF_CALL, attribute, guard_of
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

        name = first_of(convert_frame, NAMES)
        original = getattr(convert_frame, name)
    replaced = Replaced()

    def report_recompile(reasons: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        frame = args[1] if len(args) > 1 else kwargs.get("frame")
        cached = args[0] if args else next(iter(kwargs.values()), None)
        cause = cause_first(reasons, _entries(cached), frame)
        if reason := cause.text:
            values = getattr(frame, "f_locals", {})
            names = getattr(frame, "f_globals", {})
            reason = _named_lists(_named_constants(_named_cells(reason, values, names)))
            reason = _named_backend(reason)
            category = NEW_INSTANCE if cause.is_instance else category_of(reason)
            changed = {name: values[name] for name in cause.rejected if name in values}
            why = {
                **_last_batch(reason, category),
                **_parameter(reason, category, changed),
                **_actual(cause.text, values, names),
            }
            reason = _named_wrapped(reason, getattr(frame, "f_code", None), values)
            fact = {"reason": reason, "category": category, **_where(frame), **why}
            listener.post("recompile", fact)

    def reasons_of(*args: Any, **kwargs: Any) -> Any:
        reasons = original(*args, **kwargs)
        if replaced.listening:
            untraced("hooks.recompile_reasons", report_recompile, reasons, args, kwargs)
        return reasons

    replaced.put(convert_frame, name, reasons_of)
    return Installed(uninstall=replaced.undo)


_CELL = re.compile(
    r"(?P<of>(?:\b(?P<scope>[LG])\['(?P<quoted>\w+)'\]|(?<![\w.\]])(?P<name>[A-Za-z_]\w*))"
    r"(?P<attributes>(?:\.\w+){0,8}?))\.__closure__\[(?P<at>\d+)\]"
)


def _named_cells(reason: str, values: Mapping[str, Any], names: Mapping[str, Any]) -> str:
    """``reason`` with the names of variables in the closure of a function that is an argument, a
    global variable, or an attribute of one."""

    def named(match: re.Match[str]) -> str:
        scope = names if match["scope"] == "G" else values
        function = scope.get(match["quoted"] or match["name"])
        for name in match["attributes"].split(".")[1:]:
            function = own_attribute(function, name)
        variables = function.__code__.co_freevars if isinstance(function, FunctionType) else ()
        if int(match["at"]) < len(variables):
            return f"{match['of']}.__closure__[{variables[int(match['at'])]}]"
        return match[0]

    return _CELL.sub(named, reason)


_CONSTANTS = {id(None): "is None", id(True): "== True", id(False): "== False"}
_OF_ID = re.compile(
    r"___check_obj_id\((?P<name>[^\n]{1,300}?), (?P<id>\d{1,20})\)(?:, type=<class '\w+'>)?"
)


def _named_constants(reason: str) -> str:
    """``reason`` with the constants that older versions compare by id, as newer ones name them."""

    def named(match: re.Match[str]) -> str:
        constant = _CONSTANTS.get(int(match["id"]))
        return f"{match['name']} {constant}" if constant else match[0]

    return _OF_ID.sub(named, reason)


_GUARD = re.compile(r"^(\s*!?\d[\d/_]*:\s)(.*?)(?=  # |$)", re.MULTILINE)


def _named_wrapped(reason: str, code: Any, values: Mapping[str, Any]) -> str:
    """``reason`` with the class or function that a wrapper of PyTorch's calls, in place of the
    wrapper's own variable."""
    variable = wrapped_by(code, values) if isinstance(code, CodeType) else None
    if variable is None:
        return reason
    own, called = variable
    name = re.escape(own)
    pattern = re.compile(rf"(?:(?<![\w.\]'])|(?<=tensor '))(?:{name}|L\['{name}'\])(?![\w'])")
    return _GUARD.sub(lambda match: match[1] + pattern.sub(called, match[2]), reason)


# PyTorch's own list of parameters counts them
_SIZE_OF_LIST = re.compile(
    r"(?P<of>[\w.\[\]'\"]{1,200})\._size == (?P<size>\d+)(?= +# [^\n]*nn/modules/container\.py:)"
)


def _named_lists(reason: str) -> str:
    """``reason`` with the length of a list of parameters as PyTorch names that of other modules."""
    return _SIZE_OF_LIST.sub(r"len(\g<of>._parameters) != \g<size>", reason)


_NO_GUARD = re.compile(r"^(\s*\d[\d/_]*:)\s*$", re.MULTILINE)


def _named_backend(reason: str) -> str:
    """``reason`` with the words of newer versions for an entry of another backend: 2.6 has none,
    since all guards hold."""
    backends = getattr(sys.modules["torch._dynamo.eval_frame"], "cached_backends", ())
    return _NO_GUARD.sub(r"\1 BACKEND_MATCH failure", reason) if len(backends) > 1 else reason


def _where(frame: Any) -> dict[str, Any]:
    """The function that is recompiled."""
    code = getattr(frame, "f_code", None)
    return {} if code is None else place(code.co_name, code.co_filename, code.co_firstlineno)


_BATCH = re.compile(r"size mismatch at index 0\. expected (\d+), actual (\d+)")


def _last_batch(reason: str, category: str) -> dict[str, Any]:
    """``last_batch``: its size and the usual one, if the size that changed is that of the last
    batch of a DataLoader's epoch."""
    match = _BATCH.search(reason.partition("\n")[0]) if category == "shape" else None
    # the length of a sampler may be code of the user's
    value = quietly("hooks.last_batch", ragged_last_batch) if match else None
    if match is None or value is None or {int(match[1]), int(match[2])} != set(value):
        return {}
    return {"last_batch": list(value)}


_SIZE = re.compile(
    r"tensor '(?:L\[')?(?P<name>\w+).*' size mismatch at index \d+\. expected \d+, actual "
    r"(?P<size>\d+)\s*$"
)


def _parameter(reason: str, category: str, changed: Mapping[str, Any]) -> dict[str, Any]:
    """``parameter``: the argument that keeps the size that changed static: a parameter that has
    that size, too, and had another one.

    ``changed``: the local variables that the entry rejects. That of the reason proves nothing: a
    dict may hold the tensor that changed beside parameters that did not.
    """
    match = _SIZE.search(reason.partition("\n")[0]) if category == "shape" else None
    torch = sys.modules["torch"]
    is_static = getattr(torch._dynamo.config, "force_parameter_static_shapes", False)
    if match is None or not is_static:
        return {}
    kind, size = torch.nn.Parameter, int(match["size"])
    others = {name: value for name, value in changed.items() if name != match["name"]}
    # a subclass is not static; no code of a tensor subclass, nor of a mode, of the program
    with torch._C.DisableTorchFunction():
        pairs = tensors_in(others, torch.Tensor)
        names = (name for name, value in pairs if type(value) is kind and size in value.shape)
        name = next(names, None)
    return {"parameter": name} if name else {}


_EQUALS = re.compile(
    r"\s*!?\d[\d/_]*:\s*(?P<length>len\()?(?:(?P<scope>[LG])\['(?P<quoted>\w+)'\]|(?P<name>[A-Za-z_]\w*))"
    r"(?P<steps>(?:\.\w+|\[\d+\]|\['[^'\n]{1,100}'\]){0,16})\)? [!=]= (?P<old>[\w.+-]+)"
)
# attributes that are no code of the program's
_OWN = {
    FunctionType: ("__defaults__", "__kwdefaults__", "__closure__"),
    CellType: ("cell_contents",),
    partial: ("args", "keywords", "func"),
}
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]|\['([^'\n]{1,100})'\]")
_NUMBERS = (bool, int, float)
_MOST_DIGITS = 20


def _attribute(value: Any, name: str) -> Any:
    kind = type(value)
    if name in _OWN.get(kind, ()):
        return getattr(value, name)
    fields = vars(kind).get("_fields") if isinstance(value, tuple) else None  # a named one
    if isinstance(fields, tuple) and name in fields:
        return tuple.__getitem__(value, fields.index(name))
    return own_attribute(value, name)


def _actual(reason: str, values: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, str]:
    """``actual``: the number, or the length, that is no longer what the first guard expects.

    It is read without running code of the program: of plain containers and objects' own
    attributes alone.
    """
    match = _EQUALS.match(reason)
    if match is None:
        return {}
    try:
        value = (names if match["scope"] == "G" else values)[match["quoted"] or match["name"]]
        for name, index, key in _STEP.findall(match["steps"]):
            if name:
                value = _attribute(value, name)
            elif isinstance(value, dict):
                value = dict.__getitem__(value, key or int(index))
            else:
                kind = list if isinstance(value, list) else tuple
                value = kind.__getitem__(value, int(index))
        if match["length"]:
            kinds: tuple[Any, ...] = (list, tuple, dict)
            value = next(kind for kind in kinds if isinstance(value, kind)).__len__(value)
    except (KeyError, IndexError, TypeError, ValueError, StopIteration):
        return {}
    text = repr(value) if type(value) in _NUMBERS else ""
    return {"actual": text} if text not in ("", match["old"]) and len(text) <= _MOST_DIGITS else {}


def _entries(cached: Any) -> dict[str, Any]:
    """The compiled entries by compile id; torch 2.6 passes the first one of a linked list."""
    values: dict[str, Any] = {}
    value = cached if not isinstance(cached, (list, tuple)) else None
    for entry in () if value is not None or cached is None else cached:
        values[str(getattr(entry, "compile_id", ""))] = entry
    while value is not None and len(values) < _MOST_ENTRIES:
        values[str(getattr(value, "compile_id", ""))] = value
        value = getattr(value, "next", None)
    return values


# The first key of a tensor's dispatch key set is its backend: a changed backend is a changed
# device.
_BACKEND = "CPU|CUDA|Meta|XPU|MPS|XLA|HPU|IPU|VE|MTIA|PrivateUse1"
_OTHER_DEVICE = (
    rf"dispatch key set mismatch\. expected DispatchKeySet\(({_BACKEND})\b.*"
    rf"actual DispatchKeySet\((?!\1\b)({_BACKEND})\b"
)

# A variable of the user's, which may have the name of a setting, such as `deterministic`, or may
# belong to a submodule. Torch 2.6 to 2.12 put ``___as_tensor(...).item()`` around a number. A
# comparison with a size is a condition on that size, whichever PyTorch names first.
_OF_VARIABLE = (
    r"^(?!.*\.size\(\))(?:___as_tensor\()?[^\s(]+(?<!\.training)(?<!\.dtype)(?<!\.device)"
    r"(?:\)\.item\(\))? == "
)

# First match wins. The patterns match Dynamo's guards (torch 2.6 to 2.15).
_PATTERNS: tuple[tuple[str, str], ...] = (
    (_OF_VARIABLE, "python_value"),
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
    (r"___check_obj_id|___check_type_id|_id\(| is |dispatch key set mismatch", "object_identity"),
    (r"==|!=|<=|>=|<|>|len\(|___dict|not in | in ", "python_value"),
)
_COMPILED = tuple((re.compile(pattern), category) for pattern, category in _PATTERNS)
_FRAME = re.compile(r"^\s*!?[\d/_]+:\s*")
_FRAME_ID = re.compile(r"\s*(?P<id>!?[\d/_]+):\s")
_NEXT_ENTRY = re.compile(r"\n(?=\s*!?\d[\d/_]*:\s)")


# Every guard set begins with the global state. A line about it belongs to an entry for another
# mode, such as an evaluation's. The failed guard of the entry for the present mode is the cause.
# Without one, that of the entry with the fewest other settings is, before what comes in turn.
_OF_ANOTHER_MODE = ("grad_mode", "autocast", "global_state")
_STATES = re.compile(r"GLOBAL_STATE changed:(.*)")
# PyTorch compiles these sizes apart: another size would have been an entry of its own anyway.
_OF_ONE = re.compile(r"size mismatch at index \d+\. expected [01],")
# Entries that PyTorch removed, and those for the static shape of another parameter.
_FREED = "Cache line invalidated"
_OF_PARAMETER = "Guard failed on a parameter"
_ENOUGH = 8  # reasons; redaction uses no more, and a frame can have thousands of entries
_MOST_ENTRIES = 64  # that are compared
_IN_TURN = ("requires_grad", "module_state")  # of two values, both of which come back
# Guards of a variable that Dynamo checks before its value, and of a tensor before its strides
_EARLY_GUARDS = (
    re.compile(r"(?<!\S)(?P<name>\S+) is (?:not )?None$"),
    re.compile(r"^(?:___check_type_id\(|expected type of ')(?P<name>.{1,200}?)(?:, \d|' to be )"),
    re.compile(r"^tensor '(?P<name>.{1,200}?)' (?!stride\b)\w"),
)
_VALUE = len(_EARLY_GUARDS)


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
    def telling(self) -> bool:
        """Whether it is for this module and mode, and what its guards reject is known."""
        return self.own and not self.of_mode and bool(self.rejected)

    @property
    def only(self) -> bool:
        """Whether its guards reject a single variable, of an entry for this module and mode."""
        return self.telling and len(self.rejected or ()) == 1

    @cached_property  # it is compared with that of each other entry
    def early(self) -> tuple[int, str]:
        """Which of ``_EARLY_GUARDS`` failed, and of which value; ``_VALUE`` for a later one."""
        first = _named_constants(guard_of(self.text.partition("\n")[0]))
        matches = enumerate(pattern.search(first) for pattern in _EARLY_GUARDS)
        return next(((at, match["name"]) for at, match in matches if match), (_VALUE, ""))

    def is_passed_by(self, other: _Failed) -> bool:
        """Whether the other entry got past the guard that failed here."""
        at, name = self.early
        first = other.text.partition("\n")[0]
        return other.early[0] > at and bool(re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", first))

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


class _Cause(NamedTuple):
    """``text``: all reasons, that of the cause first. ``is_instance``: it is the first compilation
    of an instance. ``rejected``: the variables that the entry of the cause rejects, if known.
    """

    text: str
    is_instance: bool = False
    rejected: frozenset[str] = frozenset()


def cause_first(reasons: Sequence[str], entries: Mapping[str, Any], frame: Any) -> _Cause:
    """The cause among the reasons.

    PyTorch's text stays unchanged: some reasons have several lines, with the user's stack.
    """
    failed = list(_failed(reasons, entries, frame))
    fitting = [item for item in failed if not item.excluded]
    if not fitting:  # nothing has changed
        names = frozenset[str]().union(*(item.of_other or () for item in failed))
        failed.sort(key=lambda value: not value.about(names))
        is_instance = any(remedy_of(guard_of(item.text)) != CLASS_OF_CALL for item in failed)
        return _Cause("\n".join(item.text for item in failed[:_ENOUGH]), is_instance)
    groups = [item for item in fitting if item.rejected and not item.of_mode]
    # called for one parameter after another: an entry of this one may be among the freed ones
    is_freed = any(_FREED in item.text for item in fitting)
    nearest = sorted(
        fitting,
        key=lambda entry: (
            _other_states(entry),
            is_freed and _OF_PARAMETER in entry.text,
            _is_farther(entry, groups),
            not entry.own,
            bool(_OF_ONE.search(entry.text.partition("\n")[0])),
        ),
    )
    if nearest[0].telling:
        near = (entry for entry in nearest if entry.telling and not _is_farther(entry, groups))
        latest = max(near, key=partial(_rank, fitting))
        nearest.sort(key=lambda entry: entry is not latest)
    others = [item for item in failed if item.excluded]
    text = "\n".join(item.text for item in [*nearest, *others][:_ENOUGH])
    return _Cause(text, rejected=nearest[0].rejected or frozenset())


def _failed(reasons: Sequence[str], entries: Mapping[str, Any], frame: Any) -> list[_Failed]:
    values, names = getattr(frame, "f_locals", {}), getattr(frame, "f_globals", {})
    code: Any = getattr(frame, "f_code", None)
    reader = Reader(values, names)
    instances = owners(code, values, getattr(frame, "closure", None) or ()) if code else {}
    most = _MOST_ENTRIES if entries else _ENOUGH  # an older one may be of this module or parameter
    faileds: list[_Failed] = []
    is_found = False  # no entry is nearer, so the guards of the others need not be read
    for text in (entry for reason in reasons for entry in _NEXT_ENTRY.split(reason.strip())):
        id = (_FRAME_ID.match(text) or {"id": ""})["id"]
        entry = entries.get(id)
        failed = _Failed(
            text=text.strip(),
            rejected=None if entry is None or is_found else reader.rejected(entry),
            of_other=INSTANCES.of_other(code, id, instances) if instances and entry else None,
            of_mode=category_of(text) in _OF_ANOTHER_MODE,
        )
        faileds.append(failed)
        most -= not failed.of_mode
        if most == 0:
            break
        is_found |= failed.only and failed.early[0] == _VALUE and category_of(text) not in _IN_TURN
    return faileds


def _rank(fitting: Sequence[_Failed], failed: _Failed) -> float:
    """The place, from the newest entry on, of the oldest one that accepts what ``failed`` rejects,
    negated; larger if none does, so that its value is the newest."""
    in_turn, rejected = category_of(failed.text) in _IN_TURN, failed.rejected or frozenset[str]()
    accepting = [
        place
        for place, entry in enumerate(fitting)
        if entry.rejected is not None
        and not entry.of_mode
        # a size is compared after ``requires_grad`` of the same tensor
        and (not rejected & entry.rejected or (in_turn and category_of(entry.text) == "shape"))
    ]
    return -max(accepting, default=-1)


def _other_states(failed: _Failed) -> tuple[int, bool]:
    """How many settings the entry has otherwise, and whether one of them is a mode."""
    if not failed.of_mode:
        return 0, False
    names = _STATES.search(failed.text.partition("\n")[0])
    is_mode = category_of(failed.text) != "global_state"
    return len(names[1].split()) if names else 1, is_mode


def _is_farther(failed: _Failed, others: Sequence[_Failed]) -> bool:
    """Whether another entry rejects only a part of what this one rejects, or the same later on."""
    rejected = failed.rejected
    return rejected is not None and any(
        other.rejected is not None
        and (
            other.rejected < rejected or (other.rejected == rejected and failed.is_passed_by(other))
        )
        for other in others
    )


@lru_cache(maxsize=64)  # one recompile needs that of a reason several times
def category_of(reason: str) -> str:
    """The category of a recompile reason: that of the guard in its first line.

    Ignores the user's strings and the quoted line of code, which may contain any text.
    """
    first = _FRAME.sub("", guard(reason.strip().partition("\n")[0])).partition("  # ")[0]
    if pair := kind_of(guard_of(first)):
        return pair[0].category
    first = attribute(first)  # what a submodule has is not its own state
    for pattern, category in _COMPILED:
        if pattern.search(first):
            return category
    return "other"
