"""The advice for a size that changes: PyTorch always accepts it, and it always has an effect."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from support import slots
from support.torch_versions import TORCH
from support.trainings import result_of
from warmwatch.shared.advice import advice, advice_for, cause
from warmwatch.shared.breaks import break_remedy
from warmwatch_monitor.model.journal import Compilation

MARK = "maybe_mark_dynamic"
FOUR, FIVE = (
    f"0/{at}: tensor 'x' size mismatch at index 0. expected {at + 3}, actual 6" for at in (0, 1)
)
SEVEN = FOUR.replace("expected 3", "expected 7")
ONE = FOUR.replace("expected 3", "expected 1")
OTHER_DIM = "0/1: tensor 'x' size mismatch at index 1. expected 4, actual 6"
KERNEL = "(_inductor/codegen/cpp.py:2273 in need_use_acc_helper)"
LERP = "(_refs/__init__.py:4711 in _lerp_scalar)"
TRACED = "(_dynamo/variables/tensor.py:2606 in evaluate_expr)"
SAME_SIZE = FOUR.replace("0/0:", "0/1:")

PARAMETER = (
    "0/0: tensor 'self._parameters['weight']' size mismatch at index 0. expected 4, actual 6. "
    "Guard failed on a parameter, consider"
)
# A parameter that is passed to the function: its sizes are static, too.
ARGUMENT = PARAMETER.replace("self._parameters['weight']", "p")


@pytest.mark.parametrize(
    ("reason", "dynamic", "words"),
    [
        (FOUR, None, MARK),
        (FOUR, False, MARK),
        (f"{FOUR}\n{OTHER_DIM}", None, MARK),
        (f"{SAME_SIZE}\n{FOUR}", None, MARK),
        (f"{FOUR}\n{FIVE}", False, MARK),
        (FOUR, True, "makes a constant of this size"),
        (f"{FOUR}\n{FIVE}", None, MARK),  # as where a mask became dynamic later
        (f"{FOUR}\n{FIVE}\n{SEVEN}", None, "makes a constant of this size"),
        (f"{FOUR}\n{FIVE}\n{ONE}", None, MARK),
        ("0/0: tensor 'x' size mismatch at index 0. expected 4, actual 1", None, "sizes 0 and 1"),
        ("0/0: tensor 'x' size mismatch at index 0. expected 1, actual 4", None, "sizes 0 and 1"),
        ("0/0: 2 <= x.size()[0]  # def f(x)", True, "sizes 0 and 1"),
        ("0/0: 2 <= x.size()[0]  # if x.shape[0] <= 4", True, "sizes 0 and 1"),
        ("0/0: 2 <= x.size()[0] <= 32  # if x.shape[0] <= 32", True, "sets a condition on it"),
        ("2 <= x.size()[0] <= 32", None, "sets a condition on it"),
        ("0/0: x.size()[0] != 4  # if x.shape[0] == 4", True, "sets a condition on it"),
        ("0/0: Eq(Mod(x.size()[0], 2), 0)", None, "sets a condition on it"),
        (f"0/0: 33 <= x.size()[0]  # a.py:4 in f {TRACED}", True, "sets a condition on it"),
        (f"0/1: 17 <= x.size()[0] <= 64  # {KERNEL}", True, "PyTorch's own kernels"),
        (f"0/1: 17 <= x.size()[0] <= 64  # a.py:4 in f {KERNEL}", None, "PyTorch's own kernels"),
        (f"0/1: 17 <= x.size()[0]  # {KERNEL} and {TRACED}", None, "sets a condition on it"),
        (f"0/1: 2 <= x.size()[0] <= 4096  # a.py:4 in f {KERNEL}", None, "PyTorch's own kernels"),
        ("0/0: tensor 'x' stride mismatch at index 0. expected 8, actual 16", None, "same layout"),
        ("0/0: tensor 'x' rank mismatch. expected 2, actual 3", None, "same number of dims"),
        (PARAMETER, None, "force_parameter_static_shapes"),
        (PARAMETER.replace("parameters", "buffers"), None, "force_parameter_static_shapes"),
        (ARGUMENT, None, "force_parameter_static_shapes"),
        (f"{ARGUMENT}\n{ARGUMENT.replace('4', '5')}", None, "force_parameter_static_shapes"),
        (PARAMETER, False, "and leave dynamic=False out"),
        (ARGUMENT, False, "Leave dynamic=False out, and set"),
    ],
)
def test_the_advice_for_a_size_follows_from_its_guard(
    reason: str, dynamic: bool | None, words: str
) -> None:
    text = advice("shape", "forward", reason, dynamic=dynamic) or ""
    assert words in text
    assert (MARK in text) is (words == MARK)


@pytest.mark.parametrize(
    ("reason", "dynamic", "once"),
    [
        (FOUR, None, True),
        (f"{SAME_SIZE}\n{FOUR}", None, True),
        (FOUR, False, False),  # each size recompiles
        (f"{FOUR}\n{FIVE}", None, True),
        (f"{FOUR}\n{FIVE}\n{SEVEN}", None, False),
        (PARAMETER, None, False),
        ("0/0: tensor 'x' size mismatch at index 0. expected 4, actual 1", None, False),
    ],
)
def test_the_advice_says_whether_other_sizes_will_recompile(
    reason: str, dynamic: bool | None, once: bool
) -> None:
    text = advice("shape", "forward", reason, dynamic=dynamic) or ""
    early = advice("shape", "forward", reason, dynamic=dynamic, after_warm=False)
    assert ("other sizes usually need no recompile" in text) is once
    assert (early is not None) is once  # it needs no remedy, but will it come again?
    assert early is None or (text.endswith(early) and MARK not in early)
    assert advice("autocast", "forward", "0/0: any", after_warm=False) is None
    once = advice("global_state", "forward", "0/0: any", after_warm=False)  # saves a compilation
    assert "before the first compiled call" in str(once)


def test_one_layout_saves_a_compilation_in_the_warm_up_too() -> None:
    reason = "0/0: tensor 'x' stride mismatch at index 1. expected 256, actual 1"
    early = advice("shape", "forward", reason, after_warm=False) or ""
    assert early == advice("shape", "forward", reason)
    assert "contiguous" in early


@pytest.mark.parametrize(
    ("guard", "words"),
    [
        ("L['self'].tag == '...'", "Pass the same value at every call"),
        ('mode == "train"', "Pass the same value at every call"),
        ("L['causal'] == True", "Pass the same value at every call"),
        ("L['mask'] == None", "Pass the same value at every call"),
        ("L['names'] == {'...'}", "Pass the same value at every call"),
        ("L['size'] == (4, 4)", "Pass the same value at every call"),
        ("L['dtype'] == torch.float32", "Pass the same value at every call"),
        ("L['___stack0'] == 12.5", "comes from a graph break"),
        ("___stack1 == '...'", "comes from a graph break"),
        ("len(___stack2) == 3", "comes from a graph break"),
        ("L['packed']['...'] == 31868", "PyTorch treats a number as dynamic"),
        ("G['packed'] == 31868", "pass it as an argument"),
        ("dict(type(L['c']).__dict__)['packed'] == 31868", "PyTorch treats a number as dynamic"),
        ("L['f'].__defaults__[0] == 31868", "pass it as an argument"),
        ("L['cfg'].packed == 31868", "PyTorch treats a number as dynamic"),
        ("L['self'].gate.weight == 0.5", "PyTorch treats a number as dynamic"),
        ("L['weight'] == 1e-05", "PyTorch treats a number as dynamic"),
        ("L['weight'] == -inf", "as a tensor"),
        ("L['x'].step == -3  # mode == 'a'", "as a tensor"),
    ],
)
def test_the_advice_for_a_value_follows_from_its_guard(guard: str, words: str) -> None:
    text = advice("python_value", "forward", f"0/1: {guard}\n0/0: L['n'] == 3")
    assert text is not None
    assert words in text
    assert ("as a tensor" in text) is ("number" in text)


@pytest.mark.parametrize(
    ("guard", "late"),
    [
        ("self.param_groups[0]['betas'][0] == 0.95", "cycle_momentum=False"),
        (
            "self.calls == 3  # a.py:3 in f (allow_unspec_int_on_nn_module)",
            "integer becomes dynamic",
        ),
        ("G['m'].calls == 3  # a.py:3 in f (allow_unspec_int_on_nn_module)", "in a tensor"),
        ("self.cache is None", "instead of None"),
        ("t.item() == 26", "x[t[None]]"),
        ("not hasattr(self, 'lora_A')", "before the first compiled call"),
    ],
)
def test_what_avoids_a_recompile_anywhere_is_the_remedy_in_the_warm_up_too(
    guard: str, late: str
) -> None:
    early = advice("python_value", "forward", f"0/0: {guard}", after_warm=False)
    assert early is not None
    assert late in early
    assert advice("python_value", "forward", "0/0: mask is None", after_warm=False) is None


@pytest.mark.parametrize(
    ("reason", "dynamic", "is_constant"),
    [
        ("0/1: end == 3\n0/0: end == 6", None, True),
        ("0/0: end == 3", True, True),
        ("0/3: end == 0\n0/2: end == 6\n0/1: end == 5\n0/0: end == 1", None, True),
        ("0/1: end == 6\n0/0: end == 6", None, False),  # something else changed
        ("0/0: end == 3", None, False),
        ("0/1: end == 1\n0/0: end == 0", None, False),  # PyTorch's own constants
        ("0/1: end == 3\n0/0: end == 6", False, False),
        ("0/1: lr == 0.3\n0/0: lr == 0.6", None, False),
    ],
)
def test_no_tensor_is_advised_for_an_integer_that_the_code_makes_a_constant(
    reason: str, dynamic: bool | None, is_constant: bool
) -> None:
    text = str(advice("python_value", "forward", reason, dynamic=dynamic))
    assert ("select with a mask" in text) is is_constant
    assert ("as a tensor" in text) is not is_constant


@pytest.mark.parametrize("guard", ["k == 1", "k != 1", "0 <= k <= 1", "2 <= k"])
def test_a_number_that_becomes_a_size_of_0_or_1_has_its_own_remedy(guard: str) -> None:
    for place, own in (("_prims/__init__.py:9 in g", True), ("_dynamo/v.py:9 in g", False)):
        text = advice("python_value", "forward", f"0/1: {guard}  # t.py:3 in f ({place})")
        assert ("keep it above 1" in str(text)) is own


def test_values_that_need_other_remedies_are_other_causes() -> None:
    guards = ("L['self'].tag == '...'", "___stack0 == 1.5", "L['n'] == 3")
    assert len({cause("python_value", "forward", f"0/0: {guard}") for guard in guards}) == 3


# Whether fewer compilations follow where the batch is marked decides whether the advice is right.
SIZES = """
import torch._dynamo, torch._dynamo.utils as utils

NUMBERS = {3: 1, 4: 2, 5: 3, 7: 4}
def plain(x): return x * 2
def constant(x): return x * NUMBERS[int(x.shape[0])]
def both(x): return x * 2

def made(function, dynamic, mark):
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="eager", dynamic=dynamic)
    utils.clear_compilation_metrics()
    for size in [(3, 6), (3, 7), (4, 8)] if function is both else [(3,), (4,), (5,), (7,)]:
        x = torch.ones(size)
        if mark: mark(x, list(range(x.dim())))
        try: compiled(x)
        except Exception as error: return type(error).__name__
    return len(utils.get_compilation_metrics())

result([
    [function.__name__, dynamic, made(function, dynamic, None),
     made(function, dynamic, torch._dynamo.maybe_mark_dynamic)]
    for function in (plain, both, constant) for dynamic in (None, True, False)
])
"""


@pytest.mark.training
def test_the_advice_to_mark_a_size_appears_only_if_it_saves_recompiles(records: Path) -> None:
    done = result_of(records, SIZES)
    lines = [
        msgspec.convert(event, Compilation)
        for event in slots.events(slots.only(records))
        if event["event"] == "compilation" and "category" in event
    ]
    advised = {}  # the last of each stands
    for one in lines:
        text = advice(one.category, one.kind, one.reason, dynamic=one.dynamic) or ""
        advised[one.name, one.dynamic] = MARK in text
    saves = {(name, dynamic): marked < plain for name, dynamic, plain, marked in done}
    assert saves == {
        ("plain", None): True,
        ("plain", True): False,
        ("plain", False): True,
        ("both", None): True,
        ("both", True): False,
        ("both", False): True,
        ("constant", None): False,
        ("constant", True): False,
        ("constant", False): False,
    }
    del saves["plain", True], saves["both", True]  # never compiled again
    # With ``dynamic=False`` nothing shows that the code makes a constant of the size.
    assert advised == saves | {("constant", False): True}


# PyTorch's own count of compilations decides whether the advice is right.
NUMBERS = """
import torch._dynamo, torch._dynamo.utils as utils

class Gate(torch.nn.Module):
    a = b = 0.5
COUNT, gate = 3, Gate()

def float_of_module(gate, x): return x * gate.a
def floats_of_module(gate, x): return x * gate.a + gate.b
def integer_of_module(gate, x): return x * gate.a
def float_of_global(_, x): return x * gate.a
def integer_of_global(_, x): return x * COUNT
def integer(number, x): return x * number
def integer_in_a_dict(numbers, x): return x * numbers["n"]
def in_a_closure(function, x): return function(x)
def probability(number, x): return torch.nn.functional.dropout(x, number)

def changed(value):
    global COUNT
    COUNT = gate.a = value
    gate.b = value / 2
    return gate
def closure(value): return lambda x: x * value

GIVEN = {
    float_of_module: lambda n: changed(n + 0.5), floats_of_module: lambda n: changed(n + 0.5),
    integer_of_module: changed, float_of_global: lambda n: changed(n + 0.5),
    integer_of_global: changed, integer: int, integer_in_a_dict: lambda n: {"n": n},
    in_a_closure: lambda n: closure(n + 0.5), probability: lambda n: n / 10,
}

def made(function, given, dynamic):
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="eager", dynamic=dynamic)
    utils.clear_compilation_metrics()
    for number in (3, 4, 5, 6): compiled(given(number), torch.ones(4))
    return len(utils.get_compilation_metrics())

result([[function.__name__, dynamic, made(function, given, dynamic)]
        for function, given in GIVEN.items() for dynamic in (None, False)])
"""


@pytest.mark.training
def test_no_more_recompiles_are_promised_only_where_none_follow(records: Path) -> None:
    done = {(name, dynamic): compiled for name, dynamic, compiled in result_of(records, NUMBERS)}
    lines = [
        msgspec.convert(event, Compilation)
        for event in slots.events(slots.only(records))
        if event["event"] == "compilation" and "category" in event
    ]
    advised: dict[tuple[str | None, bool | None], list[str]] = {key: [] for key in done}
    for number, line in enumerate(lines, 1):
        own = [each for each in lines[number:] if each.function == line.function]
        later = [each for each in own if each.dynamic == line.dynamic]
        advised[line.name, line.dynamic].append(advice_for(line, later=later) or "")
    promised = {key for key, texts in advised.items() if "usually need no recompile" in str(texts)}
    right = {key for key, compiled in done.items() if compiled == 2}
    if not TORCH.guards_integers:
        assert promised < right  # also those of modules, and floats with dynamic=False
    else:
        assert promised == right
    constant = {"integer_of_module", "integer_of_global", "probability"}
    assert promised == {(name, None) for name, _ in done if name not in constant}
    # with the remedy for ``dynamic=False``, the same function is one of those
    undone = {name for (name, _), texts in advised.items() if "Leave dynamic=False" in str(texts)}
    assert undone - constant == {name for name, _ in promised}


@pytest.mark.parametrize(
    ("comment", "words"),
    [
        ("", "took both sizes for one"),
        (
            "  # duck sizing added this equality because these variables had the same size",
            "for one",
        ),
        ("  # t.py:3 in f", "take the branch outside of it"),
    ],
)
def test_sizes_that_were_equal_by_chance_are_no_condition_of_the_code(
    comment: str, words: str
) -> None:
    guard = f"0/0: L['x'].size()[1] == L['x'].size()[0]{comment}"
    assert words in str(advice("shape", "forward", guard))


@pytest.mark.parametrize(
    ("category", "guard", "words"),
    [
        ("dtype", "tensor 'x' dtype mismatch. expected Float, actual Double", "Cast the tensor"),
        (
            "dtype",
            "tensor 'self._buffers['b']' dtype mismatch. expected Float, actual Double",
            "Convert the module",
        ),
        ("dtype", "GLOBAL_STATE changed: default_dtype ", "Set global switches"),
        (
            "object_identity",
            "tensor 'x' dispatch key set mismatch. expected Set(CPU), actual Set(Sparse)",
            "to_dense()",
        ),
        ("module_state", "KeyError on L['self'].scale", "Give the attribute its last value"),
        ("python_value", "KeyError on L['batch']['...']", "Keep the number of items"),
        ("python_value", "not (k == 1 or k == 3)  # t.py:3 in f", "sets a condition"),
        ("python_value", "(8 % k) == 0  # t.py:3 in f (_refs/__init__.py:9 in g)", "own kernels"),
    ],
)
def test_the_advice_is_for_what_the_guard_is_about(category: str, guard: str, words: str) -> None:
    assert words in str(advice(category, "forward", f"0/0: {guard}"))


def test_no_mark_is_advised_for_a_tensor_from_before_a_graph_break() -> None:
    said = advice(
        "shape", reason="1/0: tensor '___stack0' size mismatch at index 0. expected 8, actual 7"
    )
    assert said is not None
    assert "graph break" in said
    assert "mark" not in said


def test_a_remedy_names_the_environment_variable_that_sets_it() -> None:
    """The setting may come from it, and needs no edit with it."""
    assert "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_SHAPES=0" in str(
        advice("shape", "forward", FOUR, dynamic=False)
    )
    for reason, variable in (
        ("Unsupported Tensor.item() call", "TORCHDYNAMO_CAPTURE_SCALAR_OUTPUTS=1"),
        ("Dynamic shape operator", "TORCHDYNAMO_CAPTURE_DYNAMIC_OUTPUT_SHAPE_OPS=1"),
    ):
        assert variable in str(break_remedy(reason, None, library=False))


def test_a_fraction_that_an_operator_compares_is_no_size() -> None:
    text = advice("python_value", reason=f"0/1: 1.0 - d >= 0.5  # a.py:4 in f {LERP}")
    assert "an operator in it (such as lerp)" in str(text)
