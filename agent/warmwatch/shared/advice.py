"""Advice for a recompile: one text for each category, and for each kind of a guard on a size.

The remedies follow from the category and the guard; if these do not show what to change, there is
no advice. No remedy names something that PyTorch would refuse: ``mark_dynamic`` raises if the code
makes the size a constant, ``maybe_mark_dynamic`` does not. A mark is an attribute of one tensor
object; a compilation reads it from the arguments of the call that it compiles.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from warmwatch.shared.guard_kinds import remedy_of
from warmwatch.shared.guard_remedies import (
    ATTRIBUTE,
    ATTRIBUTE_NONE,
    COMPARES,
    EACH,
    ENTRY,
    GLOBAL,
    HOOKS,
    IN_RANGE,
    INDEX,
    INTEGER_SETTING,
    ITEMS,
    NUMBER_AS_KEY,
    OF_TYPE,
    OF_VALUE,
    ON_PARAMETER,
    REPLACED,
    STATE,
    STATIC,
    guard_of,
    is_in_range,
)
from warmwatch.shared.values import NEW_INSTANCE

Subject = tuple[str, str]  # a tensor and a dim, or a number and an empty text

ADVICE = {
    "shape": (
        "Pad the size that changes, or bucket it (a ragged last batch can be dropped), or mark it "
        "with torch._dynamo.maybe_mark_dynamic before each call, on each tensor of that size that "
        "you pass (a view or a copy loses the mark)."
    ),
    "grad_mode": (
        "Run one evaluation (or no_grad) step at the start of the run, so that its graph is "
        "compiled during the warm-up and not later."
    ),
    "dtype": "Cast the tensor to one dtype before it reaches the compiled function.",
    "requires_grad": (
        "Set requires_grad of parameters and inputs before the first step and leave it so (to "
        "train a parameter later, add it to the optimizer then, and clear all gradients by "
        f"model.zero_grad()), {EACH}."
    ),
    "autocast": (
        "Enter autocast with the same dtype and enabled flag around every call of the "
        "compiled function, evaluation included."
    ),
    "python_value": (
        "Pass the number that changes (a learning rate, a step count) as a tensor if the code only "
        "computes with it, or keep it out of the compiled function: a tensor as a size, an index, "
        "an end of a loop or in a condition breaks the graph."
    ),
    "module_state": (
        "Do not set attributes of the module or call train() and eval() between steps, or "
        "compile each mode once during the warm-up."
    ),
    "object_identity": (
        "Create the object once and pass the same one at every call; a new one each time is a "
        "new guard."
    ),
    "global_state": (
        "Set global switches (deterministic algorithms, default dtype, precision of float32, "
        "number of threads) once, before the first compiled call."
    ),
    "device": "Move the inputs to one device before they reach the compiled function.",
    "new_instance": (
        "Call each module of the class, or each such function, once during the warm-up, as it is "
        "called later (in eval(), under no_grad): each that differs from those before compiles "
        "once, although nothing changed."
    ),
}


MADE_ANEW = (
    "The model was created again: create it once, or call torch._dynamo.reset() between trials, "
    "so that earlier ones do not count towards the recompile limit."
)

# At the recompile limit, so there are many: it may be a sweep that keeps its models.
MANY_MODULES = (
    f"{ADVICE[NEW_INSTANCE]} If each trial of a sweep creates a model, call "
    "torch._dynamo.reset() between trials."
)

# A Triton kernel of the user, which PyTorch's settings do not affect.
_OF_TRITON = {
    "shape": (
        "Pad or bucket the size that changes (for example to the next power of two), or leave it "
        "out of the kernel's autotune key. One that is no tl.constexpr recompiles only where it "
        "becomes 1 or a multiple of 16: name it in triton.jit(do_not_specialize=[...])."
    ),
    "dtype": "Cast the tensors to one dtype before they reach the kernel.",
    "python_value": (
        "Pass what changes as an ordinary argument of the kernel, not as a tl.constexpr; or, of a "
        "block size, take few values (powers of two) and call it with each during the warm-up."
    ),
}


# Sizes for which marking them dynamic does not help. The guard shows which case holds, together
# with whether sizes were dynamic during the compilation (torch 2.6 to 2.15).
_OF_ONE = (
    "PyTorch compiles sizes 0 and 1 separately, also where sizes are dynamic: pad or drop such a "
    "batch, or call the function once with it during the warm-up."
)
_OF_CONDITION = (
    "The size is dynamic already, and the code sets a condition on it: remove the condition, pad "
    "or bucket the size, or call the function once on each side of it during the warm-up."
)
_A_SIZE = r"\.size\(\)\[\d+\]"
_EQUAL_SIZES = r"[\w.\[\]'\"]+\.size\(\)\[\d+\] == [\w.\[\]'\"]+\.size\(\)\[\d+\]"
_SIZE_OF = r"([\w.\[\]'\"]{1,200})\.size\(\)\[(\d+)\]"
_OF_RELATION = (
    "Both sizes are dynamic already: call the function once on each side of the condition during "
    "the warm-up, or take the branch outside of it."
)
_OF_EQUAL = (
    "PyTorch took both sizes for one, since they were equal when it compiled: call the function "
    "once with sizes that differ during the warm-up."
)
_OF_KERNEL = (
    "PyTorch's own kernels set this condition, not your code, so marking the size dynamic does not "
    "help: pad or bucket it, or call the function with each size during the warm-up."
)
_OF_CONSTANT = (
    "The code makes a constant of this size, so marking it dynamic does not help: pad or bucket "
    "it, or find where it becomes a number (TORCH_LOGS=dynamic)."
)
_OF_PARAMETER = (
    "Keep the shape of the parameter or buffer, or set "
    "torch._dynamo.config.force_parameter_static_shapes = False (of PyTorch's own modules, such as "
    "nn.Linear, also force_nn_module_property_static_shapes = False)."
)
_OF_STATIC_PARAMETER = f"{_OF_PARAMETER.removesuffix('.')} and leave dynamic=False out."
# Of a function that an optimizer calls with each of its parameters
_OF_ARGUMENT = (
    "Set torch._dynamo.config.force_parameter_static_shapes = False, so that one compilation "
    "serves all sizes: PyTorch keeps those of a parameter static, and with them those of what is "
    "computed with it."
)
_OF_STATIC_ARGUMENT = f"Leave dynamic=False out, and {_OF_ARGUMENT[0].lower()}{_OF_ARGUMENT[1:]}"
_OF_LAST_BATCH = (
    "The last batch of an epoch had {} of {}: pass drop_last=True to the DataLoader "
    "(dataloader_drop_last=True to Hugging Face's TrainingArguments), or pad that batch."
)
_OF_STRIDE = "Give it the same layout at every call (for example with .contiguous())."
# PyTorch's default (`automatic_dynamic_shapes`)
_DYNAMIC_NOW = (
    "PyTorch treats a size as dynamic once it has changed: other sizes usually need no recompile."
)
_UNLESS = "unless the code makes a constant of it, as range() does"
_WITHOUT_STATIC = (
    "Leave dynamic=False (or automatic_dynamic_shapes = False, or "
    "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_SHAPES=0) out: PyTorch then treats"
)
_OF_STATIC = (
    f"{_WITHOUT_STATIC} a size as dynamic once it has changed, as by two sizes during the warm-up, "
    f"{_UNLESS}. "
    f"Or {ADVICE['shape'][0].lower()}{ADVICE['shape'][1:]}"
)
_OF_CHANGED = f"{ADVICE['shape']} {_DYNAMIC_NOW}"
# A tensor from before a graph break, which no user can mark
_OF_SIZE_AT_BREAK = (
    "The tensor comes from a graph break, such as a mask as an index: remove that break "
    "(torch.where instead of the mask), or pad the tensor before it."
)
_OF_RANK = "Give it the same number of dims at every call, or compile each during the warm-up."
# A size that changes again may need another of these: the newest recompile has the right one.
_OF_SIZES = frozenset(
    {
        *(ADVICE["shape"], _OF_CHANGED, _OF_STATIC, _OF_CONDITION, _OF_KERNEL, _OF_CONSTANT),
        _OF_SIZE_AT_BREAK,
    }
)
_IN_MODULE = r"\._(?:parameters|buffers)\["
_MISMATCH = (
    r"tensor '(?P<name>.+?)' (?P<what>size|stride|rank) mismatch"
    r"(?: at index (?P<dim>\d+))?\. expected (?P<old>\d+), actual (?P<new>\d+)"
)
# With an upper bound as well, the size may be above it. A comment follows the guard.
_ZERO_OR_ONE = r"^\s*(?:!?[\d/_]+:\s*)?2 <= (?![^#]*<=)"
# The places of a condition, after the guard: tracing sets those of the user's code.
_OWN_PLACE = r"# (?:[^#]* )?\((?:_\w+|nn)/"
_SYMBOLIC = r"\.(?:size|stride)\(\)|\.shape\["
_NAME = r"[A-Za-z_][\w.\[\]'\"]*"
_LONGEST = 1_000  # characters of one guard
_MOST_ENTRIES = 64


# A tensor that is of another class now, or of another kind (sparse, a lazy conjugate)
_OTHER_TYPE = "expected type of "
_OTHER_KIND = "dispatch key set mismatch"
_OF_KIND = (
    f"Pass tensors of one kind at every call (to_dense() of a sparse one, resolve_conj() of a "
    f"conjugate), {EACH}."
)
# The dtype of a module's parameters and buffers, which no input has
_OF_MODULE_DTYPE = (
    f"Convert the module to one dtype before the first compiled call and leave it so, {EACH}."
)
# A guard on the length of a list or a dict. A number that changes is a different case.
_LENGTH = r"^\s*(?:!?[\d/_]+:\s*)?len\("

# A value from before a graph break (``___stack0``), and one that no tensor can replace.
_STACK = r"___stack\d"
_AT_BREAK = (
    r"^\s*(?:!?[\d/_]+:\s*)?(?:Cache line invalidated because )?(?:len\()?"
    r"(?:[LG]\[['\"])?___stack\d"
)
_NO_NUMBER = r"^\s*(?:!?[\d/_]+:\s*)?[\w.\[\]'\"]+ == (?!-?(?:\d|inf|nan))"
_OF_VALUE_AT_BREAK = (
    "The value comes from a graph break, such as .item() or a clock: remove that break (keep the "
    "value a tensor), or use the value outside of the compiled function."
)


# An integer attribute of a module: PyTorch compiles each value, unless its setting is on. That
# changes nothing for a module that compiled code reaches through a global variable.
_IN_GLOBAL = rf"{ENTRY}G\["
_OF_TORCH = "torch."  # a global variable of PyTorch's
_OF_INTEGER = (
    f"Set torch._dynamo.config.{INTEGER_SETTING} = True, so that the integer becomes dynamic once "
    f"it has changed ({_UNLESS}), as by two values of it during the warm-up; or count outside "
    "of the compiled function."
)
_WITHOUT_STATIC_FIRST = "Leave dynamic=False out. "
_OF_STATIC_INTEGER = f"{_WITHOUT_STATIC_FIRST}{_OF_INTEGER}"
_OF_GLOBAL_INTEGER = (
    "PyTorch makes a constant of an integer that is reached through a global variable or is a "
    f"default: pass it as an argument, which becomes dynamic once it has changed ({_UNLESS}), as "
    "by two values of it during the warm-up; or keep it in a tensor (torch.tensor(0)) if the code "
    "only computes with it."
)
_OF_STATIC_GLOBAL_INTEGER = f"{_WITHOUT_STATIC_FIRST}{_OF_GLOBAL_INTEGER}"
# PyTorch made it dynamic when it first changed, and has another constant for it now.
_OF_CONSTANT_INTEGER = (
    "The code makes a constant of this integer, as range() and an index of a list do, so a tensor "
    "in its place breaks the graph: select with a mask or an index tensor of one size, or keep it "
    "out of the compiled function."
)


_OF_RANGE = (
    "range() makes a constant of this integer: call the function with each value during the "
    "warm-up (up to the recompile limit), take the loop out of the compiled function and compile "
    "what it repeats, or select with a mask in place of the loop."
)


# An integer that is dynamic already, with a condition on it, or of which a kernel makes a constant.
_OF_NUMBER_CONDITION = (
    "The number is dynamic already, and the code, or an operator in it (such as lerp), sets a "
    "condition on it: take that branch outside of the compiled function, pass an operator's number "
    "as a tensor, or call the function once on each side of it during the warm-up."
)
_OF_NUMBER_OF_ONE = (
    "The number becomes a size, and PyTorch compiles sizes 0 and 1 separately: keep it above 1, or "
    "call the function once with each during the warm-up."
)
_OF_SLICE = (
    "An operator of PyTorch sets this condition on the number, such as a slice of which it is a "
    "bound: keep the number within the tensor's size (torch.sym_min(start, size - length) in the "
    "code, or a min() before the call), or call the function once on each side of it during the "
    "warm-up."
)
_BOUND = r"^(?!.*%).* <=? "
_AT_MOST_ONE = r"^(?:\d+ <= )?[\w.\[\]'\"]+(?: [!=]= [01]| <= 1)$|^2 <= (?!.*<=)"


# A number of an optimizer, which a schedule changes. A learning rate can be a tensor.
_IN_GROUPS = r"\.param_groups\[\d+\]\['(?P<name>\w+)'\]"
_OF_OPTIMIZER = (
    "Keep this number of the optimizer constant (of OneCycleLR and CyclicLR: "
    "cycle_momentum=False), or call step() outside of the compiled function."
)
_OF_LEARNING_RATE = (
    "Make the learning rate a tensor, as in lr=torch.tensor(0.01), which a scheduler then changes "
    "in place (by hand: group['lr'].fill_(0.005)), or call step() outside of the compiled function."
)
# PyTorch's default makes these inputs once they have changed: a finite float anywhere, and an
# integer that is reached through an argument; not one of a module (PyTorch names the setting), a
# default, nor one that is reached through a global variable.
_INTEGER = r"^(?P<name>\w+(?:\.\w+|\[[^\]]*\])*) == (?P<old>-?\d+)$"
_CONSTANT_PLACE = rf"{_IN_GLOBAL}|\.__(?:kw)?defaults__\b"
# that it has a value, or is of a type
_NUMBER_GUARD = r"^(?P<name>[\w.\[\]'\"]+) == -?\d|^___check_type_id\((?P<typed>[\w.\[\]'\"]+),"
_FLOAT = r"^(?P<name>[\w.\[\]'\"]+) == (?P<old>-?\d+(?:\.\d+(?:e[+-]?\d+)?|e[+-]?\d+))$"
_FLOAT_EXPRESSION = r"^\(.{1,200}\) == -?\d+\.\d"  # `(1.0 + clip) == 1.2`
_OF_CONSTANT_FLOAT = (
    "The code makes a constant of this number: pass it as a tensor and compute with torch "
    "functions (torch.exp instead of math.exp), or keep it out of the compiled function."
)
_OF_FLOAT_OF_FUNCTION = (
    "A function of PyTorch, such as clamp(), dropout() or layer_norm(), makes a constant of this "
    "number: pass a tensor where the function takes one (clamp() does), change the number in few "
    "steps, since each value compiles once, or compute the same with tensors (of dropout: "
    "x * (torch.rand_like(x) > p) / (1 - p))."
)
_DYNAMIC_NUMBER = (
    "PyTorch treats a number as dynamic once it has changed: other values usually need no "
    "recompile."
)
_OF_CHANGED_NUMBER = (
    f"{_DYNAMIC_NUMBER} Call the function with two values of it during the warm-up, or pass it as "
    "a tensor if the code only computes with it."
)
_OF_STATIC_NUMBER = (
    f"{_WITHOUT_STATIC} a number as dynamic once it has changed, as by two values during the "
    f"warm-up, {_UNLESS}. Or "
    f"{ADVICE['python_value'][0].lower()}{ADVICE['python_value'][1:]}"
)


# What a first change says in the warm-up. A later one of the same size or number can refute it.
_AT_FIRST = {_OF_CHANGED: _DYNAMIC_NOW, _OF_CHANGED_NUMBER: _DYNAMIC_NUMBER}
# With these the first change still recompiles, and the later ones do not
AFTER_FIRST = frozenset(
    {
        *(_OF_STATIC, _OF_STATIC_NUMBER, _OF_INTEGER, _OF_STATIC_INTEGER),
        *(_OF_GLOBAL_INTEGER, _OF_STATIC_GLOBAL_INTEGER),
    }
)
# Where that compilation took a notable time, what saves it in the next run
FROM_THE_START = {
    _DYNAMIC_NOW: (
        "Mark the size with torch._dynamo.maybe_mark_dynamic, on each tensor of that size that you "
        "pass, from the first call on: one compilation then serves all sizes."
    )
}
# Another value of the number may need another of these.
_OF_NUMBERS = frozenset(
    {
        *(ADVICE["python_value"], _OF_CHANGED_NUMBER, _OF_CONSTANT_INTEGER, _OF_RANGE),
        *(_OF_CONSTANT_FLOAT, _OF_FLOAT_OF_FUNCTION),
        *(_OF_NUMBER_CONDITION, _OF_NUMBER_OF_ONE, _OF_SLICE),
    }
)
_REFUTE_NOTHING = frozenset({*_AT_FIRST, _OF_ONE, _OF_NUMBER_OF_ONE})

# These avoid a recompile wherever it happens. Others only move one to the warm-up.
SURE = frozenset(
    {
        *(_OF_STRIDE, _OF_OPTIMIZER, _OF_LEARNING_RATE),
        *(ATTRIBUTE, ATTRIBUTE_NONE, INDEX, STATIC, STATE),
        *(ITEMS, NUMBER_AS_KEY, HOOKS, REPLACED),
        *(_OF_INTEGER, _OF_STATIC_INTEGER, _OF_GLOBAL_INTEGER, _OF_STATIC_GLOBAL_INTEGER),
        *(ADVICE["global_state"], ADVICE["dtype"], ADVICE["device"], _OF_MODULE_DTYPE),
    }
)


def of_integer(reason: str, dynamic: bool | None) -> str | None:
    """The remedy for the guard in the first line, if it is on an integer that a tensor in its place
    does not help; ``None`` if it is on another value."""
    first, *others = [entry[:_LONGEST] for entry in reason.split("\n")[:_MOST_ENTRIES]]
    guard, match = guard_of(first), _integer(first)
    if match and (IN_RANGE in first or is_in_range(first)):
        return _OF_RANGE
    if match and guard.startswith(_OF_TORCH):
        return GLOBAL
    is_constant = match is not None and re.search(_CONSTANT_PLACE, f"{first} {guard}")
    if is_constant:
        return _OF_STATIC_GLOBAL_INTEGER if dynamic is False else _OF_GLOBAL_INTEGER
    if INTEGER_SETTING in first:
        return _OF_STATIC_INTEGER if dynamic is False else _OF_INTEGER
    if re.match(_FLOAT_EXPRESSION, guard):
        return _of_constant_float(first)
    if re.search(COMPARES, guard) or (match and re.search(_OWN_PLACE, first)):
        if not _is_in_kernel(first) or re.search(r"\d\.\d", guard):  # a fraction is no size
            return _OF_CONSTANT_INTEGER if match else _OF_NUMBER_CONDITION
        if re.search(_AT_MOST_ONE, guard):
            return _OF_NUMBER_OF_ONE
        return _OF_SLICE if re.search(_BOUND, guard) else _OF_KERNEL
    if match is None or dynamic is False:
        return None
    same = filter(None, map(_integer, (first, *others)))
    *newer, oldest = [item["old"] for item in same if item["name"] == match["name"]]
    # PyTorch itself makes constants of 0 and 1, and of the first value unless ``dynamic`` is true
    values = {*newer, oldest} if dynamic else {*newer} - {oldest}
    return _OF_CONSTANT_INTEGER if values - {"0", "1"} else None


def of_varying(category: str | None, reason: str, dynamic: bool | None) -> str | None:
    """The remedy for the size or the number in the first line, if padding the size is none, or a
    tensor in place of the number is not the only one."""
    if category != "shape":
        static = _of_number(reason, dynamic) if dynamic is False else None
        return of_integer(reason, dynamic) or static
    remedy = _of_size(reason, dynamic)
    return remedy if remedy in (_OF_PARAMETER, _OF_STATIC_PARAMETER) else None


def _of_number(reason: str, dynamic: bool | None) -> str | None:
    """The remedy for a number that PyTorch's default makes dynamic at its first change, or for a
    float of which the code, or a function of PyTorch in it, made a constant again."""
    first, *others = [entry[:_LONGEST] for entry in reason.split("\n")[:_MOST_ENTRIES]]
    if re.match(_FLOAT, guard_of(first)) and re.search(_OWN_PLACE, first):
        return _of_constant_float(first)
    match = _number(first)
    if match is None or dynamic is True:  # then it was an input from the first compilation on
        return None
    if dynamic is False:
        return _OF_STATIC_NUMBER
    again = [item for entry in others if (item := _number(entry))]
    if any(item["name"] == match["name"] and item["old"] != match["old"] for item in again):
        return None  # it changed before, and the code makes it a constant
    return _OF_CHANGED_NUMBER


def _of_constant_float(entry: str) -> str:
    return _OF_FLOAT_OF_FUNCTION if _is_in_kernel(entry) else _OF_CONSTANT_FLOAT


def _number(entry: str) -> re.Match[str] | None:
    return re.match(_FLOAT, guard_of(entry)) or _integer(entry)


def _integer(entry: str) -> re.Match[str] | None:
    return re.match(_INTEGER, guard_of(entry))


def advice(
    category: str | None,
    kind: str | None = None,
    reason: str | None = None,
    *,
    dynamic: bool | None = None,
    after_warm: bool = True,
    last_batch: Sequence[int] | None = None,
    anew: bool = False,
    parameter: str | None = None,
) -> str | None:
    """The remedy for a recompile of ``category``; ``None`` if none is known.

    ``kind``: one of ``record.KINDS``. ``reason``: PyTorch's text. ``dynamic``: whether it was
    compiled with dynamic sizes (``True``), static sizes (``False``), or only changed sizes dynamic
    (``None``, PyTorch's default). Each may be unknown. ``after_warm``: whether the first warm-up
    was over. ``last_batch``: the size of an epoch's last batch and the usual one, if that is what
    changed. ``anew``: it is for a new instance, and an earlier one is gone. ``parameter``: the
    argument whose size changed, too. A recompile of the first warm-up needs no remedy, but for the
    last batch of an epoch; the text is then whether it repeats. Those of ``SURE`` save time in the
    warm-up, too.
    """
    if anew and category == NEW_INSTANCE:
        return MADE_ANEW
    remedy = _remedy(category, kind, reason, dynamic)
    if parameter:
        remedy = _OF_STATIC_ARGUMENT if dynamic is False else _OF_ARGUMENT
    if last_batch:
        return _OF_LAST_BATCH.format(*last_batch)
    if after_warm or remedy in SURE:
        return remedy
    return _AT_FIRST.get(remedy or "")


def advice_for(value: Any, *, after_warm: bool = True, later: Iterable[Any] = ()) -> str | None:
    """The remedy for a compilation, or what is recorded of one, as far as it has the attributes.

    ``later``: later recompiles of its function, which can refute what the first change says.
    """
    if _is_refuted(value, later):
        return None
    kind = getattr(value, "kind", None) or next(iter(getattr(value, "kinds", ())), None)
    return advice(
        *(value.category, kind, value.reason),
        dynamic=value.dynamic,
        after_warm=after_warm,
        last_batch=getattr(value, "last_batch", None),
        anew=getattr(value, "anew", False),
        parameter=getattr(value, "parameter", None),
    )


def _is_refuted(value: Any, later: Iterable[Any]) -> bool:
    """Whether other sizes or values did need a recompile, of the function and for the same size or
    number."""
    if (
        not value.reason
        or getattr(value, "parameter", None)
        or _remedy(value.category, None, value.reason, value.dynamic) not in _AT_FIRST
    ):
        return False
    own = subjects(value.reason)
    return any(
        (
            own & subjects(other.reason or "")
            or remedy_of(guard_of((other.reason or "")[:_LONGEST])) == NUMBER_AS_KEY
        )
        and not getattr(other, "last_batch", None)
        and _remedy(other.category, None, other.reason, other.dynamic) not in _REFUTE_NOTHING
        for other in later
    )


def subjects(reason: str) -> frozenset[Subject]:
    """The sizes (tensor and dim), or the number, that the guard in the first line is about."""
    entry = reason.partition("\n")[0][:_LONGEST]
    if match := re.search(_MISMATCH, entry):
        return frozenset({(guard_of(match["name"]), match["dim"] or "")})
    guard = guard_of(entry)
    if match := re.match(_NUMBER_GUARD, guard):
        return frozenset({(match["name"] or match["typed"], "")})
    if sizes := re.findall(_SIZE_OF, guard):
        return frozenset(sizes)
    names = re.findall(_NAME, guard) if re.search(COMPARES, guard) else ()
    return frozenset((name, "") for name in names)


def cause(category: str, kind: str | None, reason: str | None) -> tuple[str, frozenset[Subject]]:
    """Equal for recompiles of one function that one remedy avoids: a layout, a dtype, the sizes of
    one dim, the values of one number. With what that is about, if its remedy depends on it."""
    remedy = _remedy(category, kind, reason, None)
    if remedy in _OF_SIZES or remedy in _OF_NUMBERS:
        return category, subjects(reason or "")
    return remedy or category, frozenset()


def _remedy(
    category: str | None, kind: str | None, reason: str | None, dynamic: bool | None
) -> str | None:
    if category is None:
        return None
    if kind == "triton":
        return _OF_TRITON.get(category)
    if category == NEW_INSTANCE:
        return ADVICE[category]
    if reason and re.match(_AT_BREAK, reason):
        return _OF_VALUE_AT_BREAK
    guard = guard_of((reason or "")[:_LONGEST])
    if name := remedy_of(guard) or (OF_TYPE if guard.startswith(_OTHER_TYPE) else None):
        return name
    if reason and re.match(_LENGTH, reason):
        return ITEMS
    if category == "python_value" and reason:
        first = reason.partition("\n")[0][:_LONGEST]
        if re.match(_NO_NUMBER, first):
            return OF_VALUE
        if integer := of_integer(reason, dynamic):
            return integer
        if group := re.search(_IN_GROUPS, guard):
            return _OF_LEARNING_RATE if group["name"] == "lr" else _OF_OPTIMIZER
        if number := _of_number(reason, dynamic):
            return number
    if category == "shape" and reason and (remedy := _of_size(reason, dynamic)):
        return remedy
    return _of_tensor(category, guard) or ADVICE.get(category)


def _of_tensor(category: str, guard: str) -> str | None:
    """The remedy for a dtype or a kind of tensor, if it is not that of an input's dtype."""
    if category == "dtype" and "default_dtype" in guard:
        return ADVICE["global_state"]
    if category == "dtype" and re.search(_IN_MODULE, guard):
        return _OF_MODULE_DTYPE
    return _OF_KIND if category == "object_identity" and _OTHER_KIND in guard else None


def _has_place(entry: str) -> bool:
    """Whether a line of code sets the condition. Up to torch 2.12, a remark is in its place where
    PyTorch itself does: two sizes that are equal when it compiles are one.
    """
    comment = entry.partition("  # ")[2]
    return bool(comment) and "duck sizing" not in comment


def _is_in_kernel(entry: str) -> bool:
    """Whether PyTorch's own operators set this condition, and not the user's code."""
    return re.search(_OWN_PLACE, entry) is not None and "(_dynamo/" not in entry


def _of_size(reason: str, dynamic: bool | None) -> str | None:
    """The remedy for the size guard in the first line of ``reason``, if it needs a special one."""
    first, *others = [entry[:_LONGEST] for entry in reason.split("\n")[:_MOST_ENTRIES]]
    if re.match(_ZERO_OR_ONE, first):
        return _OF_ONE
    match = re.search(_MISMATCH, first)
    if match is None:
        if not re.search(_SYMBOLIC, first):
            return None
        if len(re.findall(_A_SIZE, first.partition("  # ")[0])) == 2:
            by_itself = re.fullmatch(_EQUAL_SIZES, guard_of(first)) and not _has_place(first)
            return _OF_EQUAL if by_itself else _OF_RELATION
        return _OF_KERNEL if _is_in_kernel(first) else _OF_CONDITION
    if match["what"] != "size":
        return _OF_STRIDE if match["what"] == "stride" else _OF_RANK
    if re.search(_IN_MODULE, match["name"]):
        return _OF_STATIC_PARAMETER if dynamic is False else _OF_PARAMETER
    if ON_PARAMETER in first:
        return _OF_STATIC_ARGUMENT if dynamic is False else _OF_ARGUMENT
    if re.match(_STACK, match["name"]):
        return _OF_SIZE_AT_BREAK
    if {match["old"], match["new"]} & {"0", "1"}:
        return _OF_ONE
    # With PyTorch's default, a size that changed before is compiled as dynamic. If three entries
    # have different constants for it, the code makes it one: a second may be from another tensor,
    # which became dynamic later. The same constant shows nothing: another size changed between.
    again = [item for entry in others if (item := re.search(_MISMATCH, entry))]
    constants = {
        value["old"]
        for value in again
        if (value["name"], value["dim"]) == (match["name"], match["dim"])
    } - {match["old"], "0", "1"}
    if dynamic is True or (dynamic is None and len(constants) >= 2):
        return _OF_CONSTANT
    return _OF_CHANGED if dynamic is None else _OF_STATIC
