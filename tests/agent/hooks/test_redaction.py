"""Redaction of PyTorch's texts: no string of the user leaves the process."""

from __future__ import annotations

import time
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmwatch.hooks.dynamo.recompile_reasons import category_of
from warmwatch.hooks.points import Fact
from warmwatch.hooks.redaction import (
    error,
    failure,
    graph_break,
    hint,
    hint_of_failure,
    recompile,
    redactors,
)

KERNEL = "(_inductor/codegen/cpp.py:2273 in need_use_acc_helper)"
SETTING = "allow_unspec_int_on_nn_module"
HINT = f"(HINT: integers are static. You might want to use {SETTING} = True, or a tensor.)"
TRACED = "(_dynamo/variables/tensor.py:2606 in evaluate_expr)"
ZERO_ONE = (
    "(user code shown is first use of this value--the guard itself is not due user code but due to "
    "0/1 specialization in the framework; to avoid specialization try "
    "torch._dynamo.decorators.mark_unbacked(tensor, dim))"
)

# PyTorch's texts (torch 2.6 to 2.15), with values and keys of the user's in {0} and {1} as Python
# writes them, and a line of the user's source in {2}
GUARDS = (
    "0/0: cfg[{0}] == {1}",
    "0/0: L['cfg'][{0}] == {1}  # x = {2}  # /home/me/my run/train.py:31 in forward",
    "0/1: tensor 'batch[{0}]' size mismatch at index 0. expected 16, actual 14",
    "0/1: tensor 'L['batch'][{0}].x[{1}]' dtype mismatch. expected Float, actual Half",
    "0/1: expected type of 'd[{0}]' to be a tensor type, but found str",
    "0/2: a later PyTorch reports 'getattr(d, {0})' and 'd[{1}]' of it",
    "0/0: ___dict_contains({0}, G['d'])  # if {2}:  # (HINT: guard on it)",
    "0/0: list(dict.keys(d)) == [{0}, {1}]   # {2}  # c:\\me\\a.py:2 in <lambda> (HINT: {2})",
    "0/0: a == 1  # {2}\nUser stack trace:\n  File '/home/me/x.py', line 1, in f\n    {2}",
    "0/0: d == {{{0}: 1, 'b': {1}}}  # {2}",
    "0/0: ___check_obj_id(d[{0}], 94), type=<Ward {2}>  # {2}  # /home/me/x.py:1 in f",
)
BREAKS = (
    "call_function BuiltinVariable(print) [ConstantVariable(str: {0})] {{}}",
    "call_method UserDefinedObjectVariable(Tokens) get [ConstantVariable(str: {0}), {1}]\n{2}",
    "Dynamo doesn't know how to trace call on ConstantVariable(str: {0})",
    "can't determine what {0} is, it's the caller's: ({1})",
    "call on b{0}, rb{1}",
    "Observed exception: {2}",
    "dict KeyError: {2}",
)
SECRET = "patient_7"
anything = st.text(max_size=30)
secrets = st.builds(lambda a, b: f"{a}{SECRET}{b}", anything, anything)
# source has no line breaks in it, and may end in the middle of anything
sources = secrets.map(lambda text: " ".join(text.split()))


@pytest.mark.parametrize("text", GUARDS)
@given(one=secrets, other=secrets, source=sources)
def test_a_reason_contains_no_string_of_the_user(
    text: str, one: str, other: str, source: str
) -> None:
    redacted = recompile(text.format(repr(one), repr(other), source))
    assert SECRET not in redacted
    assert "/home" not in redacted
    assert "me\\" not in redacted


@pytest.mark.parametrize("text", BREAKS)
@given(one=secrets, other=secrets, source=sources)
def test_a_graph_break_contains_no_string_of_the_user(
    text: str, one: str, other: str, source: str
) -> None:
    assert SECRET not in graph_break(text.format(repr(one), repr(other), source))


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        (
            "0/0: cfg['prompt'] == 'patient 7'  # y = f('a')  # /home/me/train.py:31 in forward",
            "0/0: cfg['...'] == '...'  # train.py:31 in forward",
        ),
        (
            "0/1: tensor 'batch['Smith 7']' size mismatch at index 0. expected 16, actual 14",
            "0/1: tensor 'batch['...']' size mismatch at index 0. expected 16, actual 14",
        ),
        ("0/1: tensor 'batch['input_ids']' size mismatch at index 0. expected 16, actual 14", None),
        ("0/1: 2 <= of[0]['boxes'].size()[0] and L['of'][\"a_b\"].x[0].stride()[1] <= 9", None),
        (
            "0/1: batch['Smith 7']['ids'].size()[0] == 2 and cfg['ids'] == batch['x'].sizes",
            "0/1: batch['...']['ids'].size()[0] == 2 and cfg['...'] == batch['...'].sizes",
        ),
        ("0/0: tensor 'L['x']' rank mismatch. expected 2, actual 3", None),
        ("0/0: GLOBAL_STATE changed: grad_mode", None),
        ("0/1: 2 <= (s0//2) <= x.size()[0]", None),
        (
            f"0/0: a.b == 3  # b  # mp/a.py:2 in f {HINT}",
            f"0/0: a.b == 3  # a.py:2 in f ({SETTING})",
        ),
        (f"0/0: a.b == 3   {HINT}", f"0/0: a.b == 3  # ({SETTING})"),
        ("0/0: self.lr == 0.1 and self.on == True", None),
        ("0/0: x.device == device(type='cuda', index=0)", None),
        ("0/0: ___check_type_id(x, 94), type=<class '__main__.Batch'>", None),
        (
            "0/0: ___check_obj_id(x, 94), type=Patient(7)  # x.of  # /me/a.py:2 in f",
            "0/0: ___check_obj_id(x, 94), type='...'  # a.py:2 in f",
        ),
        (
            "0/0: ___check_obj_id(x, 94), type=Ward:\n7: Smith",
            "0/0: ___check_obj_id(x, 94), type='...'",
        ),
        (
            "0/0: ___check_obj_id(x, 94), type=<function f.<locals>.g at 0x7f>",
            "0/0: ___check_obj_id(x, 94), type=<class 'function'>",
        ),
        ("0/0: self._modules['head'].training == False", None),
        ("0/0: dict(type(self).__dict__)['scale'] == 2", None),
        ("0/0: state['step'] == 1 and L['group']['lr'] == 0.1", None),
        ("0/0: a[0].state[list(dict.keys(a[0].state))[0]]['step'] == 1", None),
        ("0/0: L['self'].state[list(L['self'].state.keys())[0]]['step'] == 1", None),
        (
            "0/0: state['Smith 7'] == 1 and states['a'] == 2",
            "0/0: state['...'] == 1 and states['...'] == 2",
        ),
        ("0/0: L['n'] == 3  # n * x  # a.py:2 in f", "0/0: L['n'] == 3  # a.py:2 in f"),
        ("0/0: n == 3  # n * x  # /a.py:2 in <lambda>", "0/0: n == 3  # a.py:2 in <lambda>"),
        (
            f"0/1: 33 <= x.size()[0]  # g('me')  # mp/me/a.py:4 in f {TRACED}",
            f"0/1: 33 <= x.size()[0]  # a.py:4 in f {TRACED}",
        ),
        (
            f"0/0: 16 <= x.size()[0] <= 64  # f(  # nn/conv.py:560 in g {KERNEL} and {TRACED}",
            f"0/0: 16 <= x.size()[0] <= 64  # conv.py:560 in g {KERNEL} and {TRACED}",
        ),
        (f"0/1: 17 <= x.size()[0] <= 4096  # {KERNEL} and {KERNEL}", None),
        (
            f"0/0: 2 <= x.size()[0] <= 4096  # f()  # a/linear.py:134 in g {ZERO_ONE} and {KERNEL}",
            f"0/0: 2 <= x.size()[0] <= 4096  # linear.py:134 in g {KERNEL}",
        ),
        (
            f"0/0: 2 <= x.size()[0]  # def h(x):  # mp/a/t/a.py:10 in h {ZERO_ONE}",
            "0/0: 2 <= x.size()[0]  # a.py:10 in h",
        ),
        ("0/0: n == " + "9" * 50, "0/0: n == " + "9" * 20 + "..."),
        ("inline in skipfiles: f /home/me/x.py, skipped", "inline in skipfiles: f x.py, skipped"),
        ("0/0: a == 1\n0/1: b == 'x'\n  File 'a.py'", "0/0: a == 1\n0/1: b == '...'"),
        ("""0/0: says 'f(d, "' me")' of it""", "0/0: says '...'"),
        ("0/0: text == 'torn in the mid", "0/0: text == '...'"),
    ],
)
def test_names_numbers_and_places_remain(text: str, redacted: str | None) -> None:
    assert recompile(text) == (text if redacted is None else redacted)


def test_a_long_text_is_cut() -> None:
    assert len(recompile(f"0/0: xs == {list(range(5000))}")) <= 310
    assert len(recompile("\n".join(f"0/{n}: x == {n}" for n in range(5000)))) <= 1000
    assert len(graph_break("a" * 5000)) <= 310


@pytest.mark.parametrize(
    "part", ["'", "tensor '", "a/", "[", "tensor '['a'", "/", "'\\", "a", "1", "  # ", "d['", "-/a"]
)
def test_a_text_of_any_length_takes_bounded_time(part: str) -> None:
    """A hundred times the text takes no longer than ten times, because the text is cut first."""

    def spent(length: int) -> float:
        text = (f"0/0: {part * (length // len(part))}\n") * 10
        begun = time.process_time()
        recompile(text)
        return time.process_time() - begun

    spent(1000)
    assert spent(1_000_000) < 100 * max(spent(10_000), 0.001)


def test_a_users_text_selects_no_category() -> None:
    assert category_of("0/0: cfg['mode'] == 'grad_mode autocast dtype mismatch'") == "python_value"


def test_an_agent_error_is_reported_by_type_and_place() -> None:
    raised = _raised()
    assert SECRET not in error(raised)
    assert error(raised).startswith("KeyError at test_redaction.py:")
    assert redactors(full=True).error(raised) == f"{error(raised)}: '{SECRET}'"


def _raised() -> Exception:
    try:
        raise KeyError(SECRET)
    except KeyError as raised:
        return raised


def test_the_full_text_remains_if_requested() -> None:
    text = "0/0: cfg['prompt'] == 'patient 7'  # y  # /home/me/train.py:31 in forward"
    assert redactors(full=True).recompile(text) == text
    assert redactors(full=True).graph_break("a 'b'\nmore") == "a 'b'\nmore"


@pytest.mark.parametrize(
    ("first", "explanation", "named"),
    [
        (
            "Failed to trace builtin operator",
            "Dynamo does not know how to trace builtin operator `print` with argument types",
            "Failed to trace builtin operator `print`",
        ),
        (
            "Unsupported method call",
            "Dynamo does not know how to trace method `__new__` of class `type`",
            "Unsupported method call `__new__`",
        ),
        (
            "Unsupported method call",
            "Dynamo does not know how to trace method `random` of class `Generator`",
            "Unsupported method call `Generator.random`",
        ),
        (
            "Unsupported context manager",
            "Dynamo does not know how to enter a `RLock` context manager.",
            "Unsupported context manager `RLock`",
        ),
        (
            "Observed exception",
            f"no handler\n\n  Developer debug context: raised exception TypeError('{SECRET}')",
            "Observed exception `TypeError`",
        ),
        (
            "torch.* op returned non-Tensor",
            "op: call_function; target: <function device_count at 0x7f0dd4da9b20>",
            "torch.* op returned non-Tensor `device_count`",
        ),
        (
            "Unsupported Tensor.item() call with capture_scalar_outputs=False",
            "Dynamo does not support tracing `Tensor.item()` with config.capture_scalar_outputs",
            "Unsupported Tensor.item() call with capture_scalar_outputs=False",
        ),
        (
            "Attempted to call function marked as skipped",
            "that the function `Adam.step` in file `/home/u/torch/optim/lr_scheduler.py` should",
            "Attempted to call function marked as skipped `Adam.step` in lr_scheduler.py",
        ),
        (
            "Attempted to call function marked as skipped",
            "Dynamo does not know how to trace the builtin `time.perf_counter_ns.` This function",
            "Attempted to call function marked as skipped `time.perf_counter_ns`",
        ),
        (
            "Attempted to call function marked as skipped",
            "how to trace the builtin `<unknown module>.Random.random.` This function",
            "Attempted to call function marked as skipped `Random.random`",
        ),
        (
            "Unsupported method call",
            (
                "Dynamo does not know how to trace method `now` of class `type`\n\n"
                "  Developer debug context: call_method "
                "UserDefinedClassVariable(<class 'datetime.datetime'>) now [] {}"
            ),
            "Unsupported method call `datetime.now`",
        ),
        (
            "missing tp_iter",
            "does not know how to iterate over `UserDefinedObjectVariable(generator)`.",
            "missing tp_iter `generator`",
        ),
        (
            "Missing tp_iternext",
            "Dynamo does not support next() on generator. Add tp_iternext_impl to this",
            "Missing tp_iternext `generator`",
        ),
        (
            "Failed to convert args/kwargs to proxy",
            (
                "Missing `as_proxy()` implementation\n\n  Developer debug context: call_function "
                "args: LazyVariableTracker(realized: UserDefinedObjectVariable(Generator))"
            ),
            "Failed to convert args/kwargs to proxy `Generator`",
        ),
        (  # 2.6
            "'skip function save in file /home/u/torch/serialization.py'', its reason'",
            "",
            "skip function save in file serialization.py",
        ),
        (  # 2.6
            "'inline in skipfiles: A.f | f /home/u/a.py, skipped according trace_rules.lookup'",
            "",
            "inline in skipfiles: A.f | f a.py, skipped according trace_rules.lookup",
        ),
        (
            "Can't find <function interp at 0x7fda785d8ea0> in numpy",
            "",
            "Can't find interp in numpy",
        ),
        (  # 2.6
            (
                "Graph break due to unsupported builtin time.time. This function is either a "
                "Python builtin (e.g. _warnings.warn) or a third-party C/C++ Python extension"
            ),
            "",
            "Graph break due to unsupported builtin time.time",
        ),
        (  # 2.6
            "Graph break due to unsupported builtin None.Random.random. This function is either",
            "",
            "Graph break due to unsupported builtin Random.random",
        ),
        ("Unsupported function call", f"when calling `{SECRET} x`", "Unsupported function call"),
        ("Call of print", "how to trace builtin operator `print`", "Call of print"),
    ],
)
def test_a_graph_break_has_the_name_that_its_explanation_gives(
    first: str, explanation: str, named: str
) -> None:
    assert graph_break(f"{first}\n  Explanation: {explanation}\n  Hint: Avoid it.") == named


@pytest.mark.parametrize(
    "text",
    [
        "Dynamo doesn't know how to trace call_function",
        "autograd.Function.apply: mark_dirty input not returned",
        "torch.* op returned non-Tensor int call_function aten.size",
        "Unsupported method: tolist",
    ],
)
def test_pytorchs_own_text_of_a_graph_break_is_not_changed(text: str) -> None:
    assert graph_break(text) == text


BRANCH = """Data-dependent branching
  Explanation: Detected data-dependent branching.
  Hint: This graph break is fundamental - it is unlikely that Dynamo will ever be able to trace it.
  Hint: Use `torch.cond` on 'a patient' in /home/anna/train.py to express dynamic control flow.
  Hint: Something else.

  Developer debug context: attempted to jump with TensorVariable()
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("backend='mine' raised:\nRuntimeError: a patient's value", "RuntimeError"),
        ("LoweringException: NotImplementedError: 'a'", "LoweringException: NotImplementedError"),
        ("TypeError", "TypeError"),
        ("InvalidCxxCompiler: No working C++ compiler found in 'a'", "InvalidCxxCompiler"),
        (BRANCH, "Data-dependent branching"),
        ("Unsupported: call of 'a patient'", "Unsupported: call of '...'"),
    ],
)
def test_a_failure_has_the_types_of_its_exceptions_and_no_message(text: str, words: str) -> None:
    assert failure(text) == words


def test_a_failure_for_want_of_a_fake_implementation_says_so_and_nothing_of_the_message() -> None:
    said = (
        "RuntimeError when making fake tensor call\n  Explanation: got RuntimeError('There was no "
    )
    said += "fake impl registered for <CustomOpDef(my::scale)>. This is necessary. Please use "
    words = "Use `scale.register_fake` to add a fake implementation of the operator."
    assert hint_of_failure(f"{said}`scale.register_fake` to add an fake impl.')") == words
    assert hint_of_failure("Hint: a patient's value") is None


def test_a_hint_is_the_first_one_that_helps_without_values() -> None:
    words = "Use `torch.cond` on '...' in train.py to express dynamic control flow."
    assert hint(BRANCH) == words
    assert hint("Data-dependent branching\n  Hint: This graph break is fundamental") is None
    assert hint("Hint of the user") is None
    assert hint("Encountered it\n  Hint: Avoid calling it.\n  Hint: Move it out.") == "Move it out."
    long = f"Move it out of compiled code. {'Consider another mode, which is as fast. ' * 10}"
    assert str(hint(f"Encountered it\n  Hint: {long}")).endswith("which is as fast.")


@pytest.mark.parametrize("fact", get_args(Fact))
@pytest.mark.parametrize("key", ["reason", "cudagraph_skip", "failure_reason"])
def test_no_text_of_a_fact_quotes_the_program(fact: str, key: str) -> None:
    values = {"id": "0/0", key: "cfg['prompt'] == 'a patient'"}
    redacted = redactors(full=False).fact(fact, values)
    assert redacted == {"id": "0/0", key: redacted[key]}
    assert "patient" not in redacted[key]
    assert redactors(full=True).fact(fact, values) == values
