"""Every kind of guard whose text names no size, dtype or device, in one table. Pure.

PyTorch names the guard that failed. ``torch._dynamo.guards`` and ``csrc/dynamo/guards.cpp`` (torch
2.6 to 2.15) have the texts. An entry declares all that is known of a kind: which of PyTorch's
guards have the text, an example, how to find it, the category, the plain words and the remedy.
``guard_remedies.py`` finds the guard in PyTorch's text. Guards on tensors and sizes are worded in
``reasons.py``, with remedies in ``advice.py``; ``WORDED_THERE`` lists them. A test compares both
with the guards of the installed PyTorch.
"""

from __future__ import annotations

import re
from functools import lru_cache

from warmwatch.shared import guard_remedies as remedies
from warmwatch.shared.guard_remedies import attribute

_OWNER = r"[\w.\[\]'\"()]{1,200}?"
NAME = rf"(?P<name>{_OWNER})"
_CLASS = r"(?:, type=<class '(?:[\w.<>]*\.)?(?P<type>\w+)'>)?"


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
        guards=("EQUALS_MATCH", "DICT_CONTAINS", "DICT_NOT_CONTAINS"),
        example="torch.nn.utils.parametrize._cache_enabled == 0",
        pattern=r"\btorch\.nn\.utils\.parametrize\._cache",
        category="global_state",
        words="torch.nn.utils.parametrize.cached() was entered or left",
        remedy=remedies.MODE,
    ),
    Kind(
        guards=("SEQUENCE_LENGTH", "EMPTY_NN_MODULE_HOOKS_DICT", "TYPE_MATCH", "ID_MATCH"),
        example="not self._forward_hooks",
        pattern=rf"^(?:not |len\(|___check_\w+_id\(|list\(dict\.keys\(){NAME}"
        r"\._(?:forward|backward|state_dict)\w*hooks\w*\b",
        category="module_state",
        words="the hooks of `{name}` changed",
        remedy=remedies.HOOKS,
    ),
    Kind(
        guards=("HASATTR",),
        example="not hasattr(self.q, 'lora_A')",
        pattern=rf"^not hasattr\({NAME}, '(?P<attribute>\w+)'\)",
        category="module_state",
        words="`{name}` has an attribute `{attribute}` now, and had none",
        remedy=remedies.ATTRIBUTE,
    ),
    Kind(
        guards=("HASATTR", "NOT_PRESENT_IN_GENERIC_DICT"),
        example="not ___dict_contains('forward', self.q.__dict__)",
        pattern=rf"^(?:not )?___dict_contains\('(?P<attribute>[\w.]+)', {NAME}\.__dict__\)",
        category="module_state",
        words="the attribute `{attribute}` of `{name}` was set or removed",
        remedy=remedies.ATTRIBUTE,
    ),
    Kind(
        guards=("HASATTR",),
        example="getattr failed on source c.drop",
        pattern=rf"^getattr failed on source {NAME.replace('?)', ')')}$",
        category="python_value",
        words="an attribute that `{name}` had is missing",
        remedy=remedies.ATTRIBUTE,
    ),
    Kind(
        guards=("TYPE_MATCH", "ID_MATCH"),
        example="Cache line invalidated because type(L['c']) got deallocated",
        pattern=rf"^Cache line invalidated because type\({NAME}\) got deallocated",
        category="object_identity",
        words="the class of `{name}` was freed, and this is another one",
        remedy=remedies.CLASS_OF_CALL,
    ),
    Kind(
        guards=("ID_MATCH", "WEAKREF_ALIVE"),
        example="Cache line invalidated because L['p'].grad got deallocated",
        pattern=rf"^Cache line invalidated because {NAME}\.grad got deallocated",
        category="object_identity",
        words="the gradient `{name}.grad` was freed, and this is a new one",
        remedy=remedies.FREED_GRADIENT,
    ),
    Kind(
        guards=("ID_MATCH", "WEAKREF_ALIVE"),
        example="Cache line invalidated because L['c'] got deallocated",
        pattern=rf"^Cache line invalidated because {NAME} got deallocated",
        category="object_identity",
        words="what it was compiled for (`{name}`) was freed, and this is a new one",
        remedy=remedies.FREED,
    ),
    Kind(
        guards=("NONE_MATCH", "CONSTANT_MATCH"),
        example="mask is None",
        pattern=rf"^{NAME} is None$",
        category="python_value",
        words="`{name}` was None and is not None now",
        remedy=remedies.NONE,
    ),
    Kind(
        guards=("ID_MATCH",),
        example="___check_obj_id(mask, 94), type=<class 'NoneType'>",
        pattern=rf"^_{{2,3}}check_(?:obj|type)_id\({NAME}, \d+\), type=<class 'NoneType'>",
        category="python_value",
        words="`{name}` was None and is not None now",
        remedy=remedies.NONE,
    ),
    Kind(
        guards=("TENSOR_MATCH",),
        example="expected type of 'mask' to be a tensor type, ' but found <class 'NoneType'>",
        pattern=rf"^expected type of '{NAME}' to be .*found <class 'NoneType'>",
        category="python_value",
        words="`{name}`: type went from Tensor to None",
        remedy=remedies.NONE,
    ),
    Kind(
        guards=("TENSOR_MATCH",),
        example="expected type of 'lr' to be a tensor type, ' but found <class 'float'>",
        pattern=rf"^expected type of '{NAME}' to be .*found <class '(?P<new>int|float|bool)'>",
        category="python_value",
        words="`{name}`: type went from Tensor to {new}",
        remedy=remedies.NUMBER,
    ),
    Kind(
        guards=("NOT_NONE_MATCH", "WEAKREF_ALIVE"),
        example="state is not None",
        pattern=rf"^{NAME} is not None$",
        category="python_value",
        words="`{name}` is None or was freed, and was not",
        remedy=remedies.NONE,
    ),
    Kind(
        guards=("SHAPE_ENV",),
        example="t.item() == 26",
        pattern=rf"^{NAME}\.item\(\) == (?P<value>-?\d+)$",
        category="python_value",
        words="`{name}`, a tensor as an index, is no longer {value}",
        remedy=remedies.INDEX,
    ),
    Kind(
        guards=("FUNCTION_MATCH", "BUILTIN_MATCH", "ID_MATCH"),
        example="___check_obj_id(act, 94), type=<class 'builtin_function_or_method'>",
        pattern=rf"^___check_obj_id\({NAME}, \d+\), "
        r"type=<class '(?:builtin_function_or_method|function|method|\w*method\w*)'>",
        category="object_identity",
        words="`{name}` is another function",
        remedy=remedies.FUNCTION,
    ),
    Kind(
        guards=("CLOSURE_MATCH", "CONSTANT_MATCH"),
        example="___check_obj_id(f.__code__, 94), type=<class 'code'>",
        pattern=rf"^___check_obj_id\({NAME}\.__code__, \d+\)",
        category="object_identity",
        words="`{name}` is another function",
        remedy=remedies.FUNCTION,
    ),
    Kind(
        guards=("CLASS_MATCH",),
        example="___check_obj_id(kind, 94), type=<class 'type'>",
        pattern=rf"^___check_obj_id\({NAME}, \d+\), type=<class 'type'>",
        category="object_identity",
        words="`{name}` is another class",
        remedy=remedies.OBJECT,
    ),
    Kind(
        guards=("TYPE_MATCH",),
        example="___check_type_id(k, 94), type=<class '__main__.make.<locals>.Loss'>",
        pattern=rf"^___check_type_id\({NAME}, \d+\), "
        r"type=<class '[\w.<>]*<locals>\.(?P<type>\w+)'>",
        category="object_identity",
        words="`{name}` is of another type than {type}, a class that a function defines",
        remedy=remedies.CLASS_OF_CALL,
    ),
    Kind(
        guards=("TYPE_MATCH",),
        example="___check_type_id(self._modules['l'], 94), type=<class 'torch.nn.Linear'>",
        pattern=rf"^___check_type_id\((?P<name>{_OWNER}\._modules\['\w{{1,80}}'\]), \d+\){_CLASS}",
        category="object_identity",
        words="`{name}` is of another type than {type}",
        remedy=remedies.SUBMODULE,
    ),
    Kind(
        guards=("TYPE_MATCH", "FAKE_SCRIPT_TYPE_MATCH"),
        example="___check_type_id(k, 94), type=<class 'int'>",
        pattern=rf"^___check_(?:type_id|fake_script_type)\({NAME}, \d+\){_CLASS}",
        category="object_identity",
        words="`{name}` is of another type than {type}",
        remedy=remedies.OF_TYPE,
    ),
    Kind(
        guards=("TYPE_MATCH",),
        example="TYPE_MISMATCH(L['d'])",
        pattern=rf"^TYPE_MISMATCH\({NAME}\)$",
        category="object_identity",
        words="`{name}` is of another type",
        remedy=remedies.OF_TYPE,
    ),
    Kind(
        guards=("ID_MATCH",),
        example="___check_obj_id(cache, 94), type=<class 'torch.Tensor'>",
        pattern=rf"^___check_obj_id\({NAME}, \d+\), "
        r"type=<class 'torch\.(?:nn\.parameter\.)?(?P<type>Tensor|Parameter)'>",
        category="object_identity",
        words="`{name}` is no longer the same {type}",
        remedy=remedies.STATIC,
    ),
    Kind(
        guards=("ID_MATCH", "MODULE_MATCH", "NN_MODULE", "PYMODULE_MATCH"),
        example="___check_obj_id(mode, 94), type=<class '__main__.Mode'>",
        pattern=rf"^___check_obj_id\({NAME}, \d+\){_CLASS}",
        category="object_identity",
        words="`{name}` is no longer the same {type}",
        remedy=remedies.OBJECT,
    ),
    Kind(
        guards=("DUPLICATE_INPUT",),
        example="x is y",
        pattern=rf"^{NAME} is (?P<other>[\w.\[\]'\"]+)$",
        category="object_identity",
        words="`{name}` and `{other}` are no longer the same object",
        remedy=remedies.ALIAS,
    ),
    Kind(
        guards=("NO_TENSOR_ALIASING",),
        example='Duplicate tensors found: ["x", "y"]',
        pattern=r"^Duplicate tensors? found(?:: \[['\"](?P<name>[\w.]+)['\"], "
        r"['\"](?P<other>[\w.]+)['\"]\])?",
        category="object_identity",
        words="`{name}` and `{other}` are the same tensor now",
        remedy=remedies.ALIAS,
    ),
    Kind(
        guards=("STORAGE_OVERLAPPING",),
        example="check_overlapping(overlapping=[x, y], non_overlapping=[])",
        pattern=r"^(?:not )?check_overlapping\(",
        category="object_identity",
        words="inputs share memory in another way than before",
        remedy=remedies.ALIAS,
    ),
    Kind(
        guards=("SET_CONTAINS", "SET_NOT_CONTAINS"),
        example="not set.__contains__(names, '...')",
        pattern=rf"^(?:not )?set\.__contains__\({NAME}, ",
        category="python_value",
        words="the items of the set `{name}` changed",
        remedy=remedies.ITEMS,
    ),
    Kind(
        guards=("DICT_CONTAINS", "DICT_NOT_CONTAINS"),
        example="not ___dict_contains(8, self.masks)",
        pattern=r"^(?:not )?___dict_contains\(-?\d+, (?P<name>[\w.\[\]'\"]+)\)$",
        category="python_value",
        words="the keys of `{name}` changed: a number, such as a size, is a key",
        remedy=remedies.NUMBER_AS_KEY,
    ),
    Kind(
        guards=("DICT_CONTAINS", "DICT_NOT_CONTAINS"),
        example="not ___dict_contains('...', batch)",
        pattern=r"^(?:not )?___dict_contains\(.{1,100}, (?P<name>[\w.\[\]'\"]+)\)$",
        category="python_value",
        words="the keys of `{name}` changed",
        remedy=remedies.ITEMS,
    ),
    Kind(
        guards=("DICT_KEYS", "DICT_KEYS_MATCH", "DICT_CONST_KEYS", "MAPPING_KEYS_CHECK"),
        example="list(dict.keys(batch)) == ['...']",
        pattern=rf"^(?:list\((?:dict\.keys\()?|___key_to_id\(){NAME}(?:\.keys\(\))?\)\)?"
        r"(?:\[\d+\])? ==",
        category="python_value",
        words="the keys of `{name}`, or their order, changed",
        remedy=remedies.ITEMS,
    ),
    Kind(
        guards=("DICT_VERSION",),
        example="___dict_version(d) == 5",
        pattern=rf"^___dict_version\({NAME}\) == ",
        category="python_value",
        words="the dict `{name}` changed",
        remedy=remedies.ITEMS,
    ),
    Kind(
        guards=("DICT_KEYS_MATCH", "NOT_PRESENT_IN_GENERIC_DICT"),
        example="KeyError on L['self'].scale",
        # PyTorch looks into `__dict__`: a module keeps modules, parameters and buffers elsewhere
        pattern=r"^KeyError on (?P<name>[\w.\[\]'\"]{1,200}\.\w+)$",
        category="module_state",
        words="`{name}` was deleted, or is a module, parameter or buffer now",
        remedy=remedies.MOVED,
    ),
    Kind(
        guards=("DICT_KEYS_MATCH", "TENSOR_MATCH"),
        example="KeyError on L['self']._parameters['weight']",
        pattern=r"^KeyError on (?P<name>[\w.\[\]'\"]{1,200}\._(?:parameters|buffers|modules)"
        r"\['\w+'\])$",
        category="module_state",
        words="`{name}` was removed or replaced",
        remedy=remedies.REPLACED,
    ),
    Kind(
        guards=("DICT_KEYS_MATCH", "SEQUENCE_LENGTH"),
        example="KeyError on L['batch']['...']",
        pattern=rf"^(?:Key|Index)Error on {NAME.replace('?)', ')')}$",
        category="python_value",
        words="`{name}` is missing, and was there",
        remedy=remedies.ITEMS,
    ),
    Kind(
        guards=("SEQUENCE_LENGTH", "DICT_KEYS_MATCH"),
        example="len(self._modules['blocks']._modules) != 2",
        pattern=rf"^len\({NAME}\._(?:modules|parameters|buffers|keys)\) [!=]= ",
        category="module_state",
        words="the number of submodules or parameters of `{name}` changed",
        remedy=remedies.SUBMODULE,
    ),
    Kind(
        guards=("SEQUENCE_LENGTH",),
        example="not self.state",
        pattern=r"^not (?P<name>[\w.\[\]'\"]+\.state)$",
        category="python_value",
        words="`{name}` was empty and is not now",
        remedy=remedies.STATE,
    ),
    Kind(
        guards=("SEQUENCE_LENGTH",),
        example="not buf",
        pattern=r"^not (?P<name>[\w.\[\]'\"]+)$",
        category="python_value",
        words="`{name}` was empty and is not now",
        remedy=remedies.ITEMS,
    ),
    Kind(
        guards=("TUPLE_ITERATOR_LEN", "LIST_REVERSEITERATOR_LEN"),
        example="___tuple_iterator_len(it) == 2",
        pattern=rf"^___(?:tuple_iterator|list_reverseiterator)_len\({NAME}\) == (?P<value>\d+)",
        category="python_value",
        words="the length of `{name}` is no longer {value}",
        remedy=remedies.ITEMS,
    ),
    Kind(
        guards=("RANGE_ITERATOR_MATCH", "COUNT_ITERATOR_MATCH"),
        example="___normalize_range_iter(it) == (0, 4, 1)",
        pattern=rf"^___normalize_(?:range|count)_iter\({NAME}\) == ",
        category="python_value",
        words="the iterator `{name}` is at another place",
        remedy=remedies.OF_VALUE,
    ),
    Kind(
        guards=("EQUALS_MATCH",),
        example="(type(k) is float and __math_isnan(k))",
        pattern=rf"^\(type\({NAME}\) is (?:float|complex) and __\w+_isnan",
        category="python_value",
        words="`{name}` is no longer NaN",
        remedy=remedies.OF_VALUE,
    ),
    Kind(
        guards=("SHAPE_ENV",),
        example="not math.isnan(k)",
        pattern=rf"^not (?:__)?math[._]isnan\({NAME}\)$",
        category="python_value",
        words="`{name}` is NaN, and was a number",
        remedy=remedies.OF_VALUE,
    ),
    Kind(
        guards=("CONSTANT_SUBCLASS_MATCH",),
        example="int(k) == 3",
        pattern=rf"^(?:int|float|str|bool|complex|bytes)\({NAME}\) == (?P<value>.{{1,60}})$",
        category="python_value",
        words="`{name}` is no longer {value}",
        remedy=remedies.OF_VALUE,
    ),
    Kind(
        guards=("DISPATCH_KEY_SET_MATCH",),
        example="keys.raw_repr() == DispatchKeySet(CPU).raw_repr()",
        pattern=rf"^{NAME}\.raw_repr\(\) == ",
        category="global_state",
        words="the dispatch keys in `{name}` changed",
        remedy=remedies.MODE,
    ),
    Kind(
        guards=("DUAL_LEVEL",),
        example="torch.autograd.forward_ad._current_level == -1",
        pattern=r"^torch\.autograd\.forward_ad\._current_level == ",
        category="global_state",
        words="forward-mode differentiation was entered or left",
        remedy=remedies.MODE,
    ),
    Kind(
        guards=("FUNCTORCH_STACK_MATCH",),
        example="torch._functorch.pyfunctorch.compare_functorch_state([])",
        pattern=r"^torch\._functorch\.pyfunctorch\.compare_functorch_state",
        category="global_state",
        words="a transform of torch.func (vmap, grad) was entered or left",
        remedy=remedies.FUNC,
    ),
    Kind(
        guards=("TENSOR_MATCH",),
        example="tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU), "
        "actual DispatchKeySet(CPU, FuncTorchDynamicLayerBackMode)",
        pattern=r"dispatch key set mismatch.*FuncTorch",
        category="global_state",
        words="a transform of torch.func (vmap, grad) was entered or left",
        remedy=remedies.FUNC,
    ),
    Kind(
        guards=("TENSOR_MATCH",),
        example="tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU, AutogradCPU), "
        "actual DispatchKeySet(CPU, ADInplaceOrView)",
        pattern=rf"^tensor '{NAME}' dispatch key set mismatch\. expected "
        r"DispatchKeySet\((\w+)[^)]*\bAutograd\w+\), actual DispatchKeySet\(\2(?![^)]*\bAutograd)",
        category="object_identity",
        words="`{name}` was made or is used in inference mode, and was not before",
        remedy=remedies.INFERENCE,
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
        remedy=remedies.INFERENCE,
    ),
    Kind(
        guards=("AUTOGRAD_SAVED_TENSORS_HOOKS",),
        example="torch._functorch.aot_autograd.utils.top_saved_tensors_hooks ids == None",
        pattern=r"top_saved_tensors_hooks ids == ",
        category="global_state",
        words="hooks for saved tensors (offloading, checkpointing) were set or removed",
        remedy=remedies.MODE,
    ),
    Kind(
        guards=("TENSOR_SUBCLASS_METADATA_MATCH",),
        example="___check_metadata_139_c0/0",
        pattern=r"^___check_metadata_\d+",
        category="python_value",
        words="the metadata of a tensor subclass changed",
        remedy=remedies.SUBCLASS,
    ),
    Kind(
        guards=("DTENSOR_SPEC_MATCH",),
        example="__dtensor_spec_139",
        pattern=r"^__dtensor_spec_\d+",
        category="shape",
        words="mesh, placements or shape of a DTensor changed",
        remedy=remedies.DTENSOR,
    ),
    Kind(
        guards=("OPAQUE_OBJ_GUARD_FN_MATCH",),
        example="___check_opaque_guard_fn_139_c0/0",
        pattern=r"^___check_opaque_guard_fn_\d+",
        category="python_value",
        words="a value of an opaque object changed",
        remedy=remedies.OF_VALUE,
    ),
    Kind(
        guards=("TORCH_FUNCTION_STATE", "TORCH_FUNCTION_MODE_STACK"),
        example="___check_torch_function_mode_stack()",
        pattern=r"^___check_torch_function_mode_stack\(\)",
        category="global_state",
        words="a torch function mode (such as a default device) was entered or left",
        remedy=remedies.MODE,
    ),
    Kind(
        guards=("DEFAULT_DEVICE",),
        example="utils_device.CURRENT_DEVICE == None",
        pattern=r"CURRENT_DEVICE == ",
        category="device",
        words="the default device changed",
        remedy=remedies.GLOBAL,
    ),
    Kind(
        guards=("CURRENT_STREAM_MATCH",),
        example="stream == ___get_current_stream(torch.device('cuda'))",
        pattern=r"___get_current_stream\(",
        category="global_state",
        words="the current stream changed",
        remedy=remedies.MODE,
    ),
    Kind(
        guards=("COW_TENSOR_MATCH",),
        example="___cow_tensor_matches(x, True)",
        pattern=rf"^___cow_tensor_matches\({NAME}, ",
        category="object_identity",
        words="`{name}` is a copy-on-write tensor now, or no longer",
        remedy=remedies.OF_TYPE,
    ),
    Kind(
        guards=("DIMENSION_DYNAMIC_MARKING_GUARD", "DYNAMIC_INDICES", "TENSOR_MATCH"),
        example="_has_dynamo_dim_marking is present on runtime tensor but was absent at compile "
        "time",
        pattern=r"_has_dynamo_dim_marking|_dynamo_\w*(?:indices|shape_ids|unbacked_bounds)",
        category="shape",
        words="a size is marked (dynamic, static or unbacked) in another way than before",
        remedy=remedies.MARK,
    ),
    Kind(
        guards=("DATA_PTR_MATCH",),
        example="x.data_ptr() == 139",
        pattern=rf"^{NAME}\.data_ptr\(\) == ",
        category="object_identity",
        words="`{name}` is at another address",
        remedy=remedies.ADDRESS,
    ),
    Kind(
        guards=("BACKEND_MATCH",),
        example="BACKEND_MATCH failure: torch.compile detected different backend callables.",
        pattern=r"^BACKEND_MATCH failure",
        category="object_identity",
        words="torch.compile was called again, with another backend function",
        remedy=remedies.BACKEND,
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
    unknown = "object" if "the same {type}" in kind.words else "before"
    names["type"] = f"`{named['type']}`" if "type" in named else unknown
    return kind.words.format(**names)


def remedy_of(guard: str) -> str | None:
    pair = kind_of(guard)
    if pair is None:
        return None
    kind, named = pair
    if kind.remedy != remedies.NONE:
        return kind.remedy
    name = attribute(named["name"])
    if name.endswith(".grad"):
        return remedies.NO_GRADIENT
    return remedies.ATTRIBUTE_NONE if re.match(_ATTRIBUTE_OF, name) else remedies.NONE
