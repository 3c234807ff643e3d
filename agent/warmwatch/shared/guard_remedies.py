"""The guard in an entry of PyTorch's reasons for a recompile, the names in it, and the remedies for
guards whose kind is in the table of ``guard_kinds.py``. Pure.
"""

from __future__ import annotations

import re

EACH = "or call the function once in each way during the warm-up"

# PyTorch names it in the hint of a guard on an integer attribute of a module, which it keeps static
INTEGER_SETTING = "allow_unspec_int_on_nn_module"
# after the place of a guard on an integer that the line passes to range()
IN_RANGE = "(range)"
ATTRIBUTE = (
    "Set the attribute before the first compiled call and keep it (None, as long as it is unused)."
)
ATTRIBUTE_NONE = (
    "Keep a value of one type in the attribute from before the first compiled call on (its tensor, "
    "or a neutral one, such as a mask of ones, instead of None; a number if it is one later), "
    f"{EACH}."
)
NONE = (
    "Pass None at every call or at none (a mask of ones instead of no mask), or call the function "
    "once with each combination during the warm-up."
)
OF_TYPE = f"Pass values of one type at every call, {EACH}."
MOVED = (
    "Give the attribute its last value (an adapter, a buffer) before the first compiled call, and "
    "do not delete it."
)
SUBMODULE = (
    "Add and replace submodules and parameters (adapters such as LoRA, quantized layers) before "
    "the first compiled call."
)
_PRUNED = "of a weight that is pruned later, call torch.nn.utils.prune.identity() twice"
REPLACED = (
    "Do what replaces the parameter (a parametrization, weight_norm, pruning) before the first "
    f"compiled call: {_PRUNED}."
)
HOOKS = f"Register hooks before the first compiled call ({_PRUNED})."
FUNCTION = (
    "Choose the function outside of the compiled one, with one compiled function for each, "
    "or call it with each during the warm-up."
)
OBJECT = (
    "Pass the same object at every call, or each of them once during the warm-up (members of an "
    "enum, modes); do not make a new one for each call."
)
STATIC = (
    "Pass the same tensor at every call, or, if it is marked with "
    "torch._dynamo.mark_static_address, mark it with guard=False, so that one compilation serves "
    "all."
)
FREED = (
    "Keep it alive and use the same one: make the object (a module, a context manager) or define "
    "the function once, outside of the loop."
)
FREED_GRADIENT = (
    "Keep the gradients with zero_grad(set_to_none=False), or pass the gradient as an argument."
)
NO_GRADIENT = (
    "Give each parameter a gradient from the start (p.grad = torch.zeros_like(p)) and keep it with "
    "zero_grad(set_to_none=False)."
)
CLASS_OF_CALL = (
    "Define the class once, outside of functions and loops (a function that defines it makes "
    "another one at each call), and pass values of one type at every call."
)
NUMBER = (
    "Keep it a tensor at every call: write the number into it with fill_() instead of putting a "
    "number in its place."
)
INDEX = (
    "PyTorch makes a constant of an index that is a tensor without dims: give it one dim "
    "(x[t[None]] instead of x[t]), or use index_select() or gather()."
)
INFERENCE = (
    "Use torch.no_grad() instead of torch.inference_mode(), or clone() its tensors outside of it "
    "before you pass them."
)
ALIAS = "Pass the same object for both at every call, or never (of a tensor: a copy with .clone())."
ITEMS = (
    "Keep the number of items the same, and of a dict the keys and their order (pad it, or fill it "
    "before the first compiled call), or keep it out of the compiled function."
)
NUMBER_AS_KEY = (
    "A number is a constant where it is a key of a dict: look the item up before the call and pass "
    "it, or make it from the number in the code, without the dict."
)
STATE = (
    "Fill it before the first compiled call: of an optimizer in its __init__, or with one step() "
    "that is not compiled."
)
OF_VALUE = (
    "Pass the same value at every call, or keep it out of the compiled function: branch on it "
    "before the call, or compile one function for each of few values."
)
GLOBAL = f"Set it once before the first compiled call and leave it so, {EACH}."
MODE = f"Enter it around every call of the compiled function or around none, {EACH}."
FUNC = (
    "Compile the transformed function, such as torch.compile(torch.func.vmap(f)), instead of "
    "transforming a compiled one."
)
MARK = "Mark the size before the first call of the compiled function, and at every call alike."
BACKEND = "Call torch.compile once, or with the same backend function each time."
ADDRESS = "Keep the tensor's memory: write into it with copy_() instead of passing another tensor."
DTENSOR = f"Give the DTensor the same mesh and placements at every call, {EACH}."
SUBCLASS = f"Keep the metadata of the tensor subclass the same at every call, {EACH}."


ENTRY = r"^\s*!?[\d/_]+:\s*"  # `0/1: `, before the guard of that entry
# A variable; a global one of an imported module, with the module.
LOCAL = r"\b[LG]\[['\"](?:__import_\w+['\"]\]\.|(\w+)['\"]\])"
_OF_TORCH = r"\bG\[['\"]__import_(torch(?:_dot_\w+)?)['\"]\]"
# A key of a dict that is an object, such as a parameter; torch 2.6 has the second.
_KEY = r"\[list\((?:dict\.keys\([^()]*\)|[^()]*\.keys\(\))\)\[\d+\]\]"
# Around a number that the code makes a constant; torch 2.13 has it no more.
_AS_TENSOR = r"\b___as_tensor\(([^()]{1,200})\)\.item\(\)"
# A condition that the code or PyTorch sets on sizes and integers that are dynamic
COMPARES = r" (?:<=?|>=?|!=|or|and) |^\(.{1,200}\) == "
_OF_NUMPY = r"\b___from_numpy\(([\w.\[\]'\"]{1,200})\)"  # an array of NumPy
_OF_ENVIRONMENT = r"\bos\.environ\._data\[b"
ON_PARAMETER = ". Guard failed on a parameter"  # PyTorch's text after the reason itself
_REGISTERED = r"\.(?:_parameters|_buffers|_modules|__dict__)\[['\"](?P<name>\w+)['\"]\]"
# An attribute that a class has, or one that it inherits from
_OF_CLASS = (
    r"\b(?:dict\()?type\((?P<name>[\w.\[\]'\"]{1,200})\)(?:\.__mro__\[\d+\])?"
    r"\.__dict__\)?\[['\"](?P<attribute>\w+)['\"]\]"
)


def guard_of(entry: str) -> str:
    """The guard in the first line of an entry, without its number and the user's line."""
    line = entry.strip().partition("\n")[0]
    guard = re.sub(ENTRY, "", line).partition("  # ")[0].partition(ON_PARAMETER)[0]
    of_torch = re.sub(_OF_TORCH, lambda match: match[1].replace("_dot_", "."), guard.strip())
    named = re.sub(_KEY, "['...']", re.sub(LOCAL, r"\1", of_torch.removesuffix(".")))
    named = re.sub(_OF_NUMPY, r"\1", re.sub(_OF_ENVIRONMENT, "os.environ[", named))
    of_class = re.sub(_OF_CLASS, r"\g<name>.__class__.\g<attribute>", named)
    return re.sub(_AS_TENSOR, r"\1", of_class)


def is_in_range(entry: str) -> bool:
    """Whether the guard is on an integer that the user's line passes to ``range()``."""
    guard, _, line = entry.partition("  # ")
    integer = re.search(r"(\w+)(?:['\"]\])? == -?\d+\s*$", guard)
    return bool(integer and re.search(rf"\brange\([^()]*\b{integer[1]}\b", line))


_IN_CLOSURE = r"(?<![\w.\]])([\w.]+)\.__closure__\[([A-Za-z_]\w*)\]\.cell_contents([\w.\[\]'\"]*)"


def attribute(name: str) -> str:
    """``self.l.weight`` for ``self._modules['l']._parameters['weight']``, between backticks."""
    registered = re.sub(_REGISTERED, r".\g<name>", name)
    return re.sub(_IN_CLOSURE, r"\2\3` in the closure of `\1", registered)
