"""Every kind of guard whose text names no size, dtype or device, in one table. Pure.

PyTorch names the guard that failed. ``torch._dynamo.guards`` and ``csrc/dynamo/guards.cpp``
(torch 2.6 to 2.15) have the texts. An entry declares all that is known of a kind: which of
PyTorch's guards have the text, an example, how to find it, the category, the plain words and the
remedy. ``guard_text.py`` finds the guard in PyTorch's text. Guards on tensors and sizes are worded
in ``reasons.py``, with remedies in ``advice.py``; ``WORDED_THERE`` lists them. A test compares both
with the guards of the installed PyTorch.
"""

from __future__ import annotations

import re
from functools import lru_cache

from warmwatch.shared.guard_text import attribute

_OWNER = r"[\w.\[\]'\"()]{1,200}?"
NAME = rf"(?P<name>{_OWNER})"
_CLASS = r"(?:, type=<class '(?:[\w.<>]*\.)?(?P<type>\w+)'>)?"
EACH = "or call the function once in each way during the warm-up"

# PyTorch names it in the hint of a guard on an integer attribute of a module, which it keeps static
INTEGER_SETTING = "allow_unspec_int_on_nn_module"
ATTRIBUTE = (
    "Set the attribute before the first compiled call and keep it (None, as long as it is unused)."
)
ATTRIBUTE_NONE = (
    "Keep a value of one type in the attribute from before the first compiled call on: make its "
    "tensor beforehand (in __init__), or begin with a tensor of zeros instead of None, or with a "
    "number if it is one later."
)
_NONE = f"Pass a tensor at every call (a mask of ones instead of None), {EACH}."
OF_TYPE = f"Pass values of one type at every call, {EACH}."
_SUBMODULE = (
    "Replace submodules (adapters such as LoRA, quantized layers) before the first compiled call."
)
_FUNCTION = (
    "Choose the function outside of the compiled one, with one compiled function for each, "
    "or call it with each during the warm-up."
)
_OBJECT = (
    "Pass the same object at every call, or each of them once during the warm-up (members of an "
    "enum, modes); do not make a new one for each call."
)
_FREED = (
    "Keep it alive and use the same one: make the object (a module, a context manager) or define "
    "the function once, outside of the loop."
)
_FREED_GRADIENT = (
    "Keep the gradients with zero_grad(set_to_none=False), or pass the gradient as an argument."
)
_NO_GRADIENT = (
    "Give each parameter a gradient from the start (p.grad = torch.zeros_like(p)) and keep it with "
    "zero_grad(set_to_none=False)."
)
CLASS_OF_CALL = (
    "Define the class once, outside of functions and loops (a function that defines it makes "
    "another one at each call), and pass values of one type at every call."
)
_NUMBER = (
    "Keep it a tensor at every call: write the number into it with fill_() instead of putting a "
    "number in its place."
)
INDEX = (
    "PyTorch makes a constant of an index that is a tensor without dims: give it one dim "
    "(x[t[None]] instead of x[t]), or use index_select() or gather()."
)
_INFERENCE = (
    "Use torch.no_grad() instead of torch.inference_mode(), or clone() its tensors outside of it "
    "before you pass them."
)
_ALIAS = "Pass the same tensor for both at every call, or never (a copy with .clone())."
_ITEMS = (
    "Keep the keys, their order and the number of items the same (pad it, or fill it before the "
    "first compiled call), or keep it out of the compiled function."
)
OF_VALUE = (
    "Keep the value that changes the same at every call, or out of the compiled function: branch "
    "on it before the call, or compile one function for each of few values."
)
_GLOBAL = f"Set it once before the first compiled call and leave it so, {EACH}."
_MODE = f"Enter it around every call of the compiled function or around none, {EACH}."
_FUNC = (
    "Compile the transformed function, such as torch.compile(torch.func.vmap(f)), instead of "
    "transforming a compiled one."
)
_MARK = "Mark the size before the first call of the compiled function, and at every call alike."
_BACKEND = "Call torch.compile once, or with the same backend function each time."
_ADDRESS = "Keep the tensor's memory: write into it with copy_() instead of passing another tensor."
_DTENSOR = f"Give the DTensor the same mesh and placements at every call, {EACH}."
_SUBCLASS = f"Keep the metadata of the tensor subclass the same at every call, {EACH}."


class Kind:
    """Guards with one text.

    Attributes:
        guards: names of PyTorch's guards. example: a text. pattern: matches the text without the
        entry's number and the user's line. words: with the groups of the pattern in braces.
    """

    __slots__ = ("category", "example", "guards", "pattern", "remedy", "words")

    # no dataclass: `warmwatch status` loads this module, and the import of dataclasses takes longer
    def __init__(
        self,
        *,
        guards: tuple[str, ...],
        example: str,
        pattern: str,
        category: str,
        words: str,
        remedy: str | None,
    ) -> None:
        self.guards, self.example, self.pattern = guards, example, pattern
        self.category, self.words, self.remedy = category, words, remedy


KINDS: tuple[Kind, ...] = (
    Kind(
        guards=("HASATTR",),
        example="not hasattr(self.q, 'lora_A')",
        pattern=rf"^not hasattr\({NAME}, '(?P<attribute>\w+)'\)",
        category="module_state",
        words="`{name}` has an attribute `{attribute}` now, and had none",
        remedy=ATTRIBUTE,
    ),
    Kind(
        guards=("HASATTR", "NOT_PRESENT_IN_GENERIC_DICT"),
        example="not ___dict_contains('forward', self.q.__dict__)",
        pattern=rf"^(?:not )?___dict_contains\('(?P<attribute>[\w.]+)', {NAME}\.__dict__\)",
        category="module_state",
        words="the attribute `{attribute}` of `{name}` was set or removed",
        remedy=ATTRIBUTE,
    ),
    Kind(
        guards=("HASATTR",),
        example="getattr failed on source c.drop",
        pattern=rf"^getattr failed on source {NAME.replace('?)', ')')}$",
        category="python_value",
        words="an attribute that `{name}` had is missing",
        remedy=ATTRIBUTE,
    ),
    Kind(
        guards=("TYPE_MATCH", "ID_MATCH"),
        example="Cache line invalidated because type(L['c']) got deallocated",
        pattern=rf"^Cache line invalidated because type\({NAME}\) got deallocated",
        category="object_identity",
        words="the class of `{name}` was freed, and this is another one",
        remedy=CLASS_OF_CALL,
    ),
    Kind(
        guards=("ID_MATCH", "WEAKREF_ALIVE"),
        example="Cache line invalidated because L['p'].grad got deallocated",
        pattern=rf"^Cache line invalidated because {NAME}\.grad got deallocated",
        category="object_identity",
        words="the gradient `{name}.grad` was freed, and this is a new one",
        remedy=_FREED_GRADIENT,
    ),
    Kind(
        guards=("ID_MATCH", "WEAKREF_ALIVE"),
        example="Cache line invalidated because L['c'] got deallocated",
        pattern=rf"^Cache line invalidated because {NAME} got deallocated",
        category="object_identity",
        words="what it was compiled for (`{name}`) was freed, and this is a new one",
        remedy=_FREED,
    ),
    Kind(
        guards=("NONE_MATCH", "CONSTANT_MATCH"),
        example="mask is None",
        pattern=rf"^{NAME} is None$",
        category="python_value",
        words="`{name}` was None and is not None now",
        remedy=_NONE,
    ),
    Kind(
        guards=("ID_MATCH",),
        example="___check_obj_id(mask, 94), type=<class 'NoneType'>",
        pattern=rf"^_{{2,3}}check_(?:obj|type)_id\({NAME}, \d+\), type=<class 'NoneType'>",
        category="python_value",
        words="`{name}` was None and is not None now",
        remedy=_NONE,
    ),
    Kind(
        guards=("TENSOR_MATCH",),
        example="expected type of 'mask' to be a tensor type, ' but found <class 'NoneType'>",
        pattern=rf"^expected type of '{NAME}' to be .*found <class 'NoneType'>",
        category="python_value",
        words="`{name}`: type went from Tensor to None",
        remedy=_NONE,
    ),
    Kind(
        guards=("TENSOR_MATCH",),
        example="expected type of 'lr' to be a tensor type, ' but found <class 'float'>",
        pattern=rf"^expected type of '{NAME}' to be .*found <class '(?P<new>int|float|bool)'>",
        category="python_value",
        words="`{name}`: type went from Tensor to {new}",
        remedy=_NUMBER,
    ),
    Kind(
        guards=("NOT_NONE_MATCH", "WEAKREF_ALIVE"),
        example="state is not None",
        pattern=rf"^{NAME} is not None$",
        category="python_value",
        words="`{name}` is None or was freed, and was not",
        remedy=_NONE,
    ),
    Kind(
        guards=("SHAPE_ENV",),
        example="t.item() == 26",
        pattern=rf"^{NAME}\.item\(\) == (?P<value>-?\d+)$",
        category="python_value",
        words="`{name}`, a tensor as an index, is no longer {value}",
        remedy=INDEX,
    ),
    Kind(
        guards=("FUNCTION_MATCH", "BUILTIN_MATCH", "ID_MATCH"),
        example="___check_obj_id(act, 94), type=<class 'builtin_function_or_method'>",
        pattern=rf"^___check_obj_id\({NAME}, \d+\), "
        r"type=<class '(?:builtin_function_or_method|function|method|\w*method\w*)'>",
        category="object_identity",
        words="`{name}` is another function",
        remedy=_FUNCTION,
    ),
    Kind(
        guards=("CLOSURE_MATCH", "CONSTANT_MATCH"),
        example="___check_obj_id(f.__code__, 94), type=<class 'code'>",
        pattern=rf"^___check_obj_id\({NAME}\.__code__, \d+\)",
        category="object_identity",
        words="`{name}` is another function",
        remedy=_FUNCTION,
    ),
    Kind(
        guards=("CLASS_MATCH",),
        example="___check_obj_id(kind, 94), type=<class 'type'>",
        pattern=rf"^___check_obj_id\({NAME}, \d+\), type=<class 'type'>",
        category="object_identity",
        words="`{name}` is another class",
        remedy=_OBJECT,
    ),
    Kind(
        guards=("TYPE_MATCH",),
        example="___check_type_id(k, 94), type=<class '__main__.make.<locals>.Loss'>",
        pattern=rf"^___check_type_id\({NAME}, \d+\), "
        r"type=<class '[\w.<>]*<locals>\.(?P<type>\w+)'>",
        category="object_identity",
        words="`{name}` is of another type than {type}, a class that a function defines",
        remedy=CLASS_OF_CALL,
    ),
    Kind(
        guards=("TYPE_MATCH",),
        example="___check_type_id(self._modules['l'], 94), type=<class 'torch.nn.Linear'>",
        pattern=rf"^___check_type_id\((?P<name>{_OWNER}\._modules\['\w{{1,80}}'\]), \d+\){_CLASS}",
        category="object_identity",
        words="`{name}` is of another type than {type}",
        remedy=_SUBMODULE,
    ),
    Kind(
        guards=("TYPE_MATCH", "FAKE_SCRIPT_TYPE_MATCH"),
        example="___check_type_id(k, 94), type=<class 'int'>",
        pattern=rf"^___check_(?:type_id|fake_script_type)\({NAME}, \d+\){_CLASS}",
        category="object_identity",
        words="`{name}` is of another type than {type}",
        remedy=OF_TYPE,
    ),
    Kind(
        guards=("TYPE_MATCH",),
        example="TYPE_MISMATCH(L['d'])",
        pattern=rf"^TYPE_MISMATCH\({NAME}\)$",
        category="object_identity",
        words="`{name}` is of another type",
        remedy=OF_TYPE,
    ),
    Kind(
        guards=("ID_MATCH", "MODULE_MATCH", "NN_MODULE", "PYMODULE_MATCH"),
        example="___check_obj_id(mode, 94), type=<class '__main__.Mode'>",
        pattern=rf"^___check_obj_id\({NAME}, \d+\){_CLASS}",
        category="object_identity",
        words="`{name}` is another {type}",
        remedy=_OBJECT,
    ),
    Kind(
        guards=("DUPLICATE_INPUT",),
        example="x is y",
        pattern=rf"^{NAME} is (?P<other>[\w.\[\]'\"]+)$",
        category="object_identity",
        words="`{name}` and `{other}` are no longer the same object",
        remedy=_ALIAS,
    ),
    Kind(
        guards=("NO_TENSOR_ALIASING",),
        example='Duplicate tensors found: ["x", "y"]',
        pattern=r"^Duplicate tensors? found(?:: \[['\"](?P<name>[\w.]+)['\"], "
        r"['\"](?P<other>[\w.]+)['\"]\])?",
        category="object_identity",
        words="`{name}` and `{other}` are the same tensor now",
        remedy=_ALIAS,
    ),
    Kind(
        guards=("STORAGE_OVERLAPPING",),
        example="check_overlapping(overlapping=[x, y], non_overlapping=[])",
        pattern=r"^(?:not )?check_overlapping\(",
        category="object_identity",
        words="inputs share memory in another way than before",
        remedy=_ALIAS,
    ),
    Kind(
        guards=("SET_CONTAINS", "SET_NOT_CONTAINS"),
        example="not set.__contains__(names, '...')",
        pattern=rf"^(?:not )?set\.__contains__\({NAME}, ",
        category="python_value",
        words="the items of the set `{name}` changed",
        remedy=_ITEMS,
    ),
    Kind(
        guards=("DICT_CONTAINS", "DICT_NOT_CONTAINS"),
        example="not ___dict_contains('...', batch)",
        pattern=r"^(?:not )?___dict_contains\(.{1,100}?, (?P<name>[\w.\[\]'\"]+)\)",
        category="python_value",
        words="the keys of `{name}` changed",
        remedy=_ITEMS,
    ),
    Kind(
        guards=("DICT_KEYS", "DICT_KEYS_MATCH", "DICT_CONST_KEYS", "MAPPING_KEYS_CHECK"),
        example="list(dict.keys(batch)) == ['...']",
        pattern=rf"^(?:list\((?:dict\.keys\()?|___key_to_id\(){NAME}(?:\.keys\(\))?\)\)?"
        r"(?:\[\d+\])? ==",
        category="python_value",
        words="the keys of `{name}`, or their order, changed",
        remedy=_ITEMS,
    ),
    Kind(
        guards=("DICT_VERSION",),
        example="___dict_version(d) == 5",
        pattern=rf"^___dict_version\({NAME}\) == ",
        category="python_value",
        words="the dict `{name}` changed",
        remedy=_ITEMS,
    ),
    Kind(
        guards=("DICT_KEYS_MATCH", "SEQUENCE_LENGTH"),
        example="KeyError on L['batch']['...']",
        pattern=rf"^(?:Key|Index)Error on {NAME.replace('?)', ')')}$",
        category="python_value",
        words="`{name}` is missing, and was there",
        remedy=_ITEMS,
    ),
    Kind(
        guards=("SEQUENCE_LENGTH", "EMPTY_NN_MODULE_HOOKS_DICT"),
        example="not self._forward_hooks",
        pattern=rf"^(?:not |len\(){NAME}\._(?:forward|backward|state_dict)\w*hooks\w*\b",
        category="module_state",
        words="the number of hooks of `{name}` changed",
        remedy="Register hooks before the first compiled call.",
    ),
    Kind(
        guards=("SEQUENCE_LENGTH",),
        example="not buf",
        pattern=r"^not (?P<name>[\w.\[\]'\"]+)$",
        category="python_value",
        words="`{name}` was empty and is not now",
        remedy=_ITEMS,
    ),
    Kind(
        guards=("TUPLE_ITERATOR_LEN", "LIST_REVERSEITERATOR_LEN"),
        example="___tuple_iterator_len(it) == 2",
        pattern=rf"^___(?:tuple_iterator|list_reverseiterator)_len\({NAME}\) == (?P<value>\d+)",
        category="python_value",
        words="the length of `{name}` is no longer {value}",
        remedy=_ITEMS,
    ),
    Kind(
        guards=("RANGE_ITERATOR_MATCH", "COUNT_ITERATOR_MATCH"),
        example="___normalize_range_iter(it) == (0, 4, 1)",
        pattern=rf"^___normalize_(?:range|count)_iter\({NAME}\) == ",
        category="python_value",
        words="the iterator `{name}` is at another place",
        remedy=OF_VALUE,
    ),
    Kind(
        guards=("EQUALS_MATCH",),
        example="(type(k) is float and __math_isnan(k))",
        pattern=rf"^\(type\({NAME}\) is (?:float|complex) and __\w+_isnan",
        category="python_value",
        words="`{name}` is no longer NaN",
        remedy=OF_VALUE,
    ),
    Kind(
        guards=("CONSTANT_SUBCLASS_MATCH",),
        example="int(k) == 3",
        pattern=rf"^(?:int|float|str|bool|complex|bytes)\({NAME}\) == (?P<value>.{{1,60}})$",
        category="python_value",
        words="`{name}` is no longer {value}",
        remedy=OF_VALUE,
    ),
    Kind(
        guards=("DISPATCH_KEY_SET_MATCH",),
        example="keys.raw_repr() == DispatchKeySet(CPU).raw_repr()",
        pattern=rf"^{NAME}\.raw_repr\(\) == ",
        category="global_state",
        words="the dispatch keys in `{name}` changed",
        remedy=_MODE,
    ),
    Kind(
        guards=("DUAL_LEVEL",),
        example="torch.autograd.forward_ad._current_level == -1",
        pattern=r"^torch\.autograd\.forward_ad\._current_level == ",
        category="global_state",
        words="forward-mode differentiation was entered or left",
        remedy=_MODE,
    ),
    Kind(
        guards=("FUNCTORCH_STACK_MATCH",),
        example="torch._functorch.pyfunctorch.compare_functorch_state([])",
        pattern=r"^torch\._functorch\.pyfunctorch\.compare_functorch_state",
        category="global_state",
        words="a transform of torch.func (vmap, grad) was entered or left",
        remedy=_FUNC,
    ),
    Kind(
        guards=("TENSOR_MATCH",),
        example="tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU), "
        "actual DispatchKeySet(CPU, FuncTorchDynamicLayerBackMode)",
        pattern=r"dispatch key set mismatch.*FuncTorch",
        category="global_state",
        words="a transform of torch.func (vmap, grad) was entered or left",
        remedy=_FUNC,
    ),
    Kind(
        guards=("TENSOR_MATCH",),
        example="tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU, AutogradCPU), "
        "actual DispatchKeySet(CPU, ADInplaceOrView)",
        pattern=rf"^tensor '{NAME}' dispatch key set mismatch\. expected "
        r"DispatchKeySet\((\w+)[^)]*\bAutograd\w+\), actual DispatchKeySet\(\2(?![^)]*\bAutograd)",
        category="object_identity",
        words="`{name}` was made or is used in inference mode, and was not before",
        remedy=_INFERENCE,
    ),
    Kind(
        guards=("TENSOR_MATCH",),
        example="tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU, "
        "ADInplaceOrView), actual DispatchKeySet(CPU, AutogradCPU)",
        pattern=rf"^tensor '{NAME}' dispatch key set mismatch\. expected "
        r"DispatchKeySet\((\w+)(?![^)]*\bAutograd)[^)]*\), actual "
        r"DispatchKeySet\(\2[^)]*\bAutograd",
        category="object_identity",
        words="`{name}` was made or used in inference mode, and is not now",
        remedy=_INFERENCE,
    ),
    Kind(
        guards=("AUTOGRAD_SAVED_TENSORS_HOOKS",),
        example="torch._functorch.aot_autograd.utils.top_saved_tensors_hooks ids == None",
        pattern=r"top_saved_tensors_hooks ids == ",
        category="global_state",
        words="hooks for saved tensors (offloading, checkpointing) were set or removed",
        remedy=_MODE,
    ),
    Kind(
        guards=("TENSOR_SUBCLASS_METADATA_MATCH",),
        example="___check_metadata_139_c0/0",
        pattern=r"^___check_metadata_\d+",
        category="python_value",
        words="the metadata of a tensor subclass changed",
        remedy=_SUBCLASS,
    ),
    Kind(
        guards=("DTENSOR_SPEC_MATCH",),
        example="__dtensor_spec_139",
        pattern=r"^__dtensor_spec_\d+",
        category="shape",
        words="mesh, placements or shape of a DTensor changed",
        remedy=_DTENSOR,
    ),
    Kind(
        guards=("OPAQUE_OBJ_GUARD_FN_MATCH",),
        example="___check_opaque_guard_fn_139_c0/0",
        pattern=r"^___check_opaque_guard_fn_\d+",
        category="python_value",
        words="a value of an opaque object changed",
        remedy=OF_VALUE,
    ),
    Kind(
        guards=("TORCH_FUNCTION_STATE", "TORCH_FUNCTION_MODE_STACK"),
        example="___check_torch_function_mode_stack()",
        pattern=r"^___check_torch_function_mode_stack\(\)",
        category="global_state",
        words="a torch function mode (such as a default device) was entered or left",
        remedy=_MODE,
    ),
    Kind(
        guards=("DEFAULT_DEVICE",),
        example="utils_device.CURRENT_DEVICE == None",
        pattern=r"CURRENT_DEVICE == ",
        category="device",
        words="the default device changed",
        remedy=_GLOBAL,
    ),
    Kind(
        guards=("CURRENT_STREAM_MATCH",),
        example="stream == ___get_current_stream(torch.device('cuda'))",
        pattern=r"___get_current_stream\(",
        category="global_state",
        words="the current stream changed",
        remedy=_MODE,
    ),
    Kind(
        guards=("COW_TENSOR_MATCH",),
        example="___cow_tensor_matches(x, True)",
        pattern=rf"^___cow_tensor_matches\({NAME}, ",
        category="object_identity",
        words="`{name}` is a copy-on-write tensor now, or no longer",
        remedy=OF_TYPE,
    ),
    Kind(
        guards=("DIMENSION_DYNAMIC_MARKING_GUARD", "DYNAMIC_INDICES", "TENSOR_MATCH"),
        example="_has_dynamo_dim_marking is present on runtime tensor but was absent at compile "
        "time",
        pattern=r"_has_dynamo_dim_marking|_dynamo_\w*(?:indices|shape_ids|unbacked_bounds)",
        category="shape",
        words="a size is marked (dynamic, static or unbacked) in another way than before",
        remedy=_MARK,
    ),
    Kind(
        guards=("DATA_PTR_MATCH",),
        example="x.data_ptr() == 139",
        pattern=rf"^{NAME}\.data_ptr\(\) == ",
        category="object_identity",
        words="`{name}` is at another address",
        remedy=_ADDRESS,
    ),
    Kind(
        guards=("BACKEND_MATCH",),
        example="BACKEND_MATCH failure: torch.compile detected different backend callables.",
        pattern=r"^BACKEND_MATCH failure",
        category="object_identity",
        words="torch.compile was called again, with another backend function",
        remedy=_BACKEND,
    ),
    Kind(
        guards=("NONE",),
        example="Unexpected recompilation: runtime guards failed even though they passed",
        pattern=r"^Unexpected recompilation",
        category="other",
        # 40 of 41 interrupts that PyTorch 2.13 lost in a guard check recompiled for this reason
        words="PyTorch found no guard that failed; if you pressed Ctrl-C, PyTorch lost it: "
        "press it again",
        remedy=None,
    ),
)

# Worded in ``reasons.py``, or installed together with others and without a text of their own.
WORDED_THERE = frozenset(
    {
        *("TENSOR_MATCH", "SHAPE_ENV", "EQUALS_MATCH", "BOOL_MATCH", "CONSTANT_MATCH"),
        *("GLOBAL_STATE", "GRAD_MODE", "DETERMINISTIC_ALGORITHMS", "FSDP_TRAINING_STATE"),
        *("NAME_MATCH", "OBJECT_MUTATION", "SEQUENCE_LENGTH"),
    }
)


_LONGEST = 1_000  # characters: a longer guard does not fit into a sentence, and takes long to parse
_ATTRIBUTE_OF = r"\w+(?:\.\w+)+$"


@lru_cache(maxsize=1)
def _compiled() -> tuple[tuple[re.Pattern[str], Kind], ...]:
    return tuple((re.compile(kind.pattern), kind) for kind in KINDS)


@lru_cache(maxsize=64)  # a recompile asks for its category, its words and its remedy
def kind_of(guard: str) -> tuple[Kind, dict[str, str]] | None:
    """The kind of a guard, as ``guard_of`` returns it, and what its words name."""
    if len(guard) > _LONGEST:
        return None
    for pattern, kind in _compiled():
        if match := pattern.search(guard):
            return kind, {name: value for name, value in match.groupdict().items() if value}
    return None


def words_of(guard: str) -> str | None:
    """What happened, if the table has this kind of guard."""
    pair = kind_of(guard)
    if pair is None:
        return None
    kind, named = pair
    if "{name}" in kind.words and "name" not in named:
        return "inputs are the same tensor now"  # PyTorch could not name them
    names = {key: attribute(value) for key, value in named.items()}
    unknown = "object" if "another {type}" in kind.words else "before"
    names["type"] = f"`{named['type']}`" if "type" in named else unknown
    return kind.words.format(**names)


def remedy_of(guard: str) -> str | None:
    pair = kind_of(guard)
    if pair is None:
        return None
    kind, named = pair
    if kind.remedy != _NONE:
        return kind.remedy
    name = attribute(named["name"])
    if name.endswith(".grad"):
        return _NO_GRADIENT
    return ATTRIBUTE_NONE if re.match(_ATTRIBUTE_OF, name) else _NONE
