"""Recompile reasons in plain English, next to PyTorch's own text. Pure.

``plain`` parses Dynamo's guards (torch 2.6 to 2.15), of the first entry that did not fit, and words
them: one function for each kind of guard. An unknown guard gives ``None``, and then only PyTorch's
own text is shown. The category comes from ``hooks/dynamo/recompile_reasons.py``, its advice from
``advice.py``.
"""

from __future__ import annotations

import re

from warmwatch.shared.guard_kinds import words_of
from warmwatch.shared.guard_remedies import COMPARES, ON_PARAMETER, attribute, guard_of
from warmwatch.shared.values import FUNCTION, NEW_INSTANCE

# Texts: `re` compiles each at its first use, and most commands use none.
_TENSOR = r"(?i)tensor '(?P<name>.+?)' (?P<what>[\w ]+?) mismatch\b\W*(?P<rest>.*)"
_FROM_TO = r"(?i)expected (?P<old>.+?),? (?:actual|but got|got) (?P<new>.+?)\s*$"
_DIMENSION = r"at index (\d+)"
_FROM_TWO = r"^2 <= "
_APART = "which PyTorch compiles separately"  # sizes 0 and 1
_OF_STATE = r"(?i)GLOBAL_STATE changed:\s*(.*)"
_EQUALS = r"^(?P<name>[\w.\[\]'\"]+) == (?P<value>[^=]+)$"
_FLOAT = r"-?\d+(?:\.\d+(?:e-?\d+)?|e-?\d+)"
_LENGTH = r"^len\((?P<name>.+?)\) [!=]= (?P<value>\d+)$"
_HELD = {
    "_modules": "submodules",
    "_parameters": "parameters",
    "_buffers": "buffers",
    "_keys": "parameters",
}
_TYPE = (
    r"^expected type of '(?P<name>.+?)' to be (?:<class '(?P<old>[\w.<>]+)'>|a tensor type).*?"
    r"found <class '(?P<new>[\w.<>]+)'>"
)
_KEY_SETS = r"expected DispatchKeySet\(([\w, ]+)\), actual DispatchKeySet\(([\w, ]+)\)"
_SIZE = r"(?<![\w.\[\]'\"])(?P<name>[\w.\[\]'\"]+)\.(?P<what>size|stride)\(\)\[(?P<dim>\d+)\]"
_EQUAL = r"([\w.\[\]'\"]+)\.size\(\)\[(\d+)\] == ([\w.\[\]'\"]+)\.size\(\)\[(\d+)\]"
_COMPUTED = r"\((.{1,200})\) == (-?\d+\.\d+)"  # a number that the code computes
_REDACTED = "['...']"  # a key of the program
_TEXTS = ("'...'", "b'...'")  # its values
_LINE = r"  # (?!<frozen )([\w.<>+@-]+:\d+) in "
_RANGE = rf"(?:(?P<low>\d+) <= )?{_SIZE}(?: <= (?P<high>\d+))?"
# the agent's text for what a Triton kernel is compiled or tuned for
_KERNEL = (
    r"^(?P<of>(?:dtype|alignment) of )?(?P<name>[\w.\[\]]+): "
    r"expected (?P<old>.+?), actual (?P<new>.+)$"
)
# of an argument itself, which is a module of another class
_OF_ARGUMENT_TYPE = r"^___check_type_id\(\w+, \d+\), type=<class '(?:[\w.<>]*\.)?(?P<type>\w+)'>"
_OF_FUNCTION = r"___check_obj_id\([^,]{1,200}\.__code__, "
_IDENTITY_GUARD = r"___check_(?:obj|type)_id\((?P<name>[^,]+)|^(?P<other>[\w.\[\]'\"]+) is "
_FIRST_NAME = (
    r"^(?:not |(?:type|len)\()?(?P<name>[\w.\[\]'\"]+?)(?:\._(?:modules|parameters|buffers))?"
    r"(?![\w.\[\]'\"])"
)
_OF_STACK = r"___stack\d+(?:\[[^\]]*\]|\.\w+)*"  # values computed before a function's graph break
_LONGEST = 120
_LONGEST_GUARD = 1_000  # a longer guard does not fit into 120 characters, and takes long to parse

_STATES = {
    "grad_mode": "grad mode changed: evaluation or no_grad began or ended",
    "inference_mode": "inference mode changed",
    "autocast": "autocast was entered or left",
    "deterministic_algorithms": "the setting of deterministic algorithms changed",
    "default_dtype": "the default dtype changed",
    "num_threads": "the number of threads changed",
    "torch_function": "the torch function mode changed",
}
# How a module is called, if that is what PyTorch's entries for other ones reject first.
_CALLED = {
    "grad_mode": "the grad mode",
    "inference_mode": "inference mode",
    "autocast": "autocast",
}
# PyTorch's names of these, which are also those of its settings
_SETTINGS = (
    "allow_tf32",
    "allow_fp16_reduce",
    "allow_bf16_reduce",
    "deterministic_algorithms_warn_only",
)
_CHANGED = {
    "module_state": "`{}` of the module changed",
    "object_identity": "`{}` is another object",
    "python_value": "`{}` changed",
}


def plain(
    reason: str | None,
    category: str | None = None,
    of_class: str | None = None,
    parameter: str | None = None,
    actual: str | None = None,
) -> str | None:
    """One clause, such as "`tokens`: dim 1 went from 64 to 48"; ``None`` if unknown.

    ``of_class``: of the module that is compiled. ``parameter``: the argument whose size changed,
    too. ``actual``: the number, or the length, that the guard rejects.
    """
    if category == NEW_INSTANCE:
        return _new_instance(reason or "", of_class)
    if not reason:
        return None
    first, *others = reason.strip().split("\n")
    guard = guard_of(first)
    if len(guard) > _LONGEST_GUARD:
        return None
    readers = (_state, _type, _tensor_mismatch, _kernel, _length, _equal_sizes)
    by_kind = (read(guard, category) for read in (*readers, _outside_range, _value, _object))
    text = (
        (_with_value(guard, category, actual) if actual else None)
        or words_of(guard)
        or _condition(guard, first)
        or _size_of_parameter(guard, first, parameter)
        or _outside_range_with_size(guard, others)
        or next(filter(None, by_kind), None)
    )
    text = text and attribute(text)
    text = text and re.sub(rf"`{_OF_STACK}`", "a value from before the graph break", text)
    # a condition has its line already
    if text and _REDACTED in text and (line := re.search(_LINE, first)) and line[1] not in text:
        text = f"{text} ({line[1]})"
    return text if text and len(text) <= _LONGEST else None


def _new_instance(reason: str, of_class: str | None) -> str:
    """The first compilation of another module, and in what it differs, where that is known."""
    guard = guard_of(reason.partition("\n")[0])
    if of_class == FUNCTION or re.match(_OF_FUNCTION, guard):
        return "first compilation of another function, which the same wrapper calls"
    what = f"first compilation of another {f'`{of_class}`' if of_class else 'module'}"
    if len(guard) > _LONGEST_GUARD:
        return what
    typed = re.match(_OF_ARGUMENT_TYPE, guard)
    if typed and of_class and typed["type"] != of_class:
        return f"first compilation of another module, a `{of_class}`"
    subject = _subject(guard)
    text = f"{what}: {subject} differs" if subject else what
    return text if len(text) <= _LONGEST else what


def _subject(guard: str) -> str | None:
    """What the guard is about, if that is an attribute of a module, or how it is called."""
    if state := re.search(_OF_STATE, guard):
        names = re.findall(r"\w+", state[1])
        return next((text for name, text in _CALLED.items() if name in names), None)
    if match := re.search(_TENSOR, guard):
        name, what = attribute(match["name"]), match["what"].lower()
        dimension = re.search(_DIMENSION, guard)
        if what == "size" and dimension:
            what = f"dim {dimension[1]}"
        what = {"rank": "the number of dims", "dispatch key set": "the kind"}.get(what, what)
        return f"{what} of `{name}`" if "." in name else None
    match = re.search(_IDENTITY_GUARD, guard) or re.match(_FIRST_NAME, guard)
    named = match and next((group for group in match.groups() if group), None)
    return f"`{attribute(named.strip())}`" if named and "." in named else None


def _state(guard: str, category: str | None) -> str | None:
    if "___check_global_state" in guard:
        return _STATES.get(category or "", "a global setting of PyTorch changed")
    match = re.search(_OF_STATE, guard)
    if match is None:
        return None
    names = re.findall(r"\w+", match[1])
    texts = [text for name, text in _STATES.items() if name in names]
    settings = [f"`{name}`" for name in names if name in _SETTINGS]
    if settings:
        of_float32 = " (precision of float32)" if "`allow_tf32`" in settings else ""
        texts.append(f"the setting {' and '.join(settings)}{of_float32} changed")
    return "; ".join(texts) or "a global setting of PyTorch changed"


def _tensor_mismatch(guard: str, category: str | None) -> str | None:
    match = re.search(_TENSOR, guard)
    if match is None:
        return None
    name, what = match["name"], match["what"].lower()
    if "dispatch key" in what:
        return _STATES["autocast"] if category == "autocast" else _kind_of(name, guard, category)
    values, dimension = re.search(_FROM_TO, guard), re.search(_DIMENSION, guard)
    change = "changed" if values is None else _from_to(values["old"], values["new"])
    if what == "size" and dimension is not None:
        return _size_sentence(name, dimension[1], change)
    if what == "stride" and dimension is not None:
        return f"`{name}`: stride of dim {dimension[1]} {change}"
    if what == "requires_grad":
        return f"requires_grad of `{attribute(name)}` changed"
    named = {"rank": "number of dims", "device index": "device"}.get(what, what)
    return f"`{name}`: {named} {change}"


def _size_of_parameter(guard: str, entry: str, parameter: str | None) -> str | None:
    """The size of a parameter, or of its gradient, which is no batch size."""
    match, values = re.search(_TENSOR, guard), re.search(_FROM_TO, guard)
    dimension = re.search(_DIMENSION, guard)
    if not (parameter or ON_PARAMETER in entry) or not (match and values and dimension):
        return None
    if match["what"].lower() != "size":
        return None
    change = _from_to(values["old"], values["new"])
    also = f", as that of the parameter `{parameter}`" if parameter else ""
    return f"`{attribute(match['name'])}`: dim {dimension[1]} {change}{also}"


def _from_to(old: str, new: str) -> str:
    return f"went from {old} to {new}"


def _kind_of(name: str, guard: str, category: str | None) -> str:
    """The change in the dispatch keys: the first one names device and layout, others what else the
    tensor is, such as a lazy conjugate."""
    keys = re.search(_KEY_SETS, guard)
    if keys is None:
        return f"`{name}` is of another kind"
    old, new = (text.split(", ") for text in keys.groups())
    if old[0] != new[0]:
        what = "device" if category == "device" else "kind"
        return f"`{name}`: {what} {_from_to(old[0], new[0])}"
    changes = [("now", set(new) - set(old)), ("no longer", set(old) - set(new))]
    texts = "; ".join(f"{how} {', '.join(sorted(names))}" for how, names in changes if names)
    return f"`{name}` is of another kind{f' ({texts})' if texts else ''}"


def _type(guard: str, _category: str | None) -> str | None:
    match = re.search(_TYPE, guard)
    if match is None:
        return None
    old, new = (match["old"] or "Tensor"), match["new"]
    if _class(old) == _class(new):  # a subclass was expected, which the text does not name
        return f"`{match['name']}`: type went from another tensor class to {_class(new)}"
    return f"`{match['name']}`: type {_from_to(_class(old), _class(new))}"


def _class(name: str) -> str:
    last = name.rpartition(".")[2]
    return "None" if last == "NoneType" else last


def _condition(guard: str, entry: str) -> str | None:
    """A condition on sizes or integers, with the line that sets it: none is wrong by itself."""
    if not re.search(_SIZE, guard) and not re.search(COMPARES, guard):
        return None
    if any(re.fullmatch(text, guard) for text in (_RANGE, _EQUAL, _LENGTH)):
        return None
    condition = re.sub(_SIZE, r"\g<name>.\g<what>(\g<dim>)", guard)
    if computed := re.fullmatch(_COMPUTED, condition):
        return f"`{computed[1]}` is no longer {_short(computed[2])}"
    of_line = re.search(_LINE, entry)
    return f"`{condition}` no longer holds{f' ({of_line[1]})' if of_line else ''}"


def _equal_sizes(guard: str, _category: str | None) -> str | None:
    match = re.fullmatch(_EQUAL, guard)
    if match is None:
        return None
    name, dim, other, of_other = match.groups()
    return f"dim {dim} of `{name}` and dim {of_other} of `{other}` are no longer equal"


def _size_sentence(name: str, dimension: str, predicate: str) -> str:
    """The sentence about one size; ``predicate``: "went from 64 to 40" or "is 1, which ..."."""
    name = attribute(name)
    if re.fullmatch(_OF_STACK, name):
        return f"a tensor from before the graph break: dim {dimension} {predicate}"
    # a plain name or an item of one; an attribute is a parameter or a buffer, not a batch
    batch = dimension == "0" and "." not in name
    subject = f"batch size (dim 0 of `{name}`)" if batch else f"`{name}`: dim {dimension}"
    return f"{subject} {predicate}"


def _kernel(guard: str, _category: str | None) -> str | None:
    match = re.match(_KERNEL, guard)
    if match is None:
        return None
    named = f"{match['of'] or ''}`{match['name']}`"
    if match["old"] == match["new"]:  # a value of the user, which is redacted
        return f"{named} changed"
    return f"{named} {_from_to(match['old'], match['new'])}"


def _with_value(guard: str, category: str | None, actual: str) -> str | None:
    """A number, or a length, with what it is now."""
    new = _short(actual)
    if match := re.match(_LENGTH, guard):
        owner, _, last = match["name"].rpartition(".")
        if last in _HELD:
            subject = f"number of {_HELD[last]} of `{owner}`"
        elif words_of(guard):
            return None
        else:
            subject = f"length of `{match['name']}`"
        return f"the {subject} {_from_to(match['value'], new)}"
    match = re.match(_EQUALS, guard) if category == "python_value" else None
    old = match["value"].strip() if match else ""
    if match is None or old in _TEXTS:
        return None
    return f"`{match['name']}` {_from_to(_short(old), new)}"


def _length(guard: str, _category: str | None) -> str | None:
    match = re.match(_LENGTH, guard)
    if match is None:
        return None
    if match["value"] == "0":
        return f"`{match['name']}` was empty and is not now"
    return f"the length of `{match['name']}` is no longer {match['value']}"


def _outside_range(guard: str, category: str | None) -> str | None:
    if match := re.search(_SIZE, guard):
        if match["what"] == "size" and re.fullmatch(rf"2 <= {_SIZE}", guard):
            return _size_sentence(match["name"], match["dim"], f"is 0 or 1, {_APART}")
        dimension = "" if match["what"] == "size" else "stride of "
        compiled = f"the compiled range{_range(guard)}"
        return f"`{match['name']}`: {dimension}dim {match['dim']} left {compiled}"
    return "a size left the compiled range" if category == "shape" else None


def _range(guard: str) -> str:
    """`` (17 to 4096)``, `` (16 or more)``, `` (up to 64)``, or empty if the guard is no range."""
    match = re.fullmatch(_RANGE, guard)
    if match is None or not (match["low"] or match["high"]):
        return ""
    if not match["high"]:
        return f" ({match['low']} or more)"
    return f" ({match['low']} to {match['high']})" if match["low"] else f" (up to {match['high']})"


def _outside_range_with_size(guard: str, others: list[str]) -> str | None:
    """The size outside a range, which the guards of the other entries contain."""
    ranged = re.search(_SIZE, guard)
    if ranged is None or ranged["what"] != "size":
        return None
    outside = f"outside the compiled range{_range(guard)}"
    for other in others:
        if len(other) > _LONGEST_GUARD:
            continue
        match, values = re.search(_TENSOR, line := guard_of(other)), re.search(_FROM_TO, line)
        dimension = re.search(_DIMENSION, line)
        if not (match and values and dimension) or match["what"].lower() != "size":
            continue
        if (match["name"], dimension[1]) == (ranged["name"], ranged["dim"]):
            apart = values["new"] in ("0", "1") and re.match(_FROM_TWO, guard)
            why = _APART if apart else outside
            return _size_sentence(match["name"], dimension[1], f"is {values['new']}, {why}")
    return None


def _value(guard: str, category: str | None) -> str | None:
    match = re.match(_EQUALS, guard)
    if match is None or category not in ("python_value", "module_state"):
        return None
    name, value = attribute(match["name"]), _short(match["value"].strip())
    if category == "module_state" and name.endswith(".training"):
        owner = name.removesuffix(".training")
        module = f"the module `{owner}`" if "." in owner else "the module"
        was, now = ("eval", "train") if value in ("False", "0") else ("train", "eval")
        return f"{module} went from {was}() to {now}()"
    # the agent redacts strings: "it is no longer '...'", or "{'...'}", would help no one
    return f"`{name}` changed" if _TEXTS[0] in value else f"`{name}` is no longer {value}"


def _short(value: str) -> str:
    """A float with six digits: ``0.3`` for ``0.30000000000000004``. Anything else unchanged."""
    return f"{float(value):.6g}" if re.fullmatch(_FLOAT, value) else value


def _object(guard: str, category: str | None) -> str | None:
    if category not in _CHANGED:
        return None
    match = re.search(_IDENTITY_GUARD, guard)
    name = (match["name"] or match["other"]) if match else None
    if name is None:
        item = re.match(_FIRST_NAME, guard)
        name = item["name"] if item else None
    return _CHANGED[category].format(attribute(name.strip())) if name else None
