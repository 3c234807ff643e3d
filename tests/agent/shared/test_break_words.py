"""A remedy for a graph break follows from whole words of PyTorch's reason."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from warmwatch.shared.breaks import break_remedy, break_remedy_for, plain_break

# the remedy of what has no better one
ANY = "Run this line outside of the compiled function, and pass its result."


def test_no_setting_is_the_remedy_for_a_batch_norm_without_momentum() -> None:
    of = {"hint": None, "name": "forward", "library": True, "caller": "train.py:9"}
    value = SimpleNamespace(reason="Unsupported Tensor.item() call", file="batchnorm.py", **of)
    assert str(break_remedy_for(value)).startswith("Give BatchNorm a momentum")
    value.file = "rnn.py"
    assert "capture_scalar_outputs" in str(break_remedy_for(value))


@pytest.mark.parametrize(
    ("reason", "hint", "remedy"),
    [
        (
            "Attempted to call function marked as skipped `_warnings.warn`",
            "add it to `...config.reorderable_logging_functions` (ignore_logging_functions)",
            (
                "Take the warning out of the compiled function, or add warnings.warn to "
                "torch._dynamo.config.ignore_logging_functions."
            ),
        ),
        (
            "Unsupported Tensor.backward() call",
            "Set torch._dynamo.trace_autograd_ops=True",
            (
                "Compile the forward alone, and call backward() outside of the compiled function, "
                "or set torch._dynamo.config.trace_autograd_ops (and detach what the function "
                "returns)."
            ),
        ),
        (
            "Unsupported functorch tracing attempt",
            "If it is intended, use vmap within the compiled function",
            (
                "Compile the function that calls the transform (such as vmap) instead of the one "
                "that the transform calls."
            ),
        ),
        (
            "Tensor.retain_grad() with AOTDispatcher",
            None,
            (
                "Compile what follows from this tensor as another function, and call retain_grad() "
                "between the two."
            ),
        ),
        (
            "Tensor.backward",
            None,
            "Compile the forward alone, and call backward() outside of the compiled function.",
        ),
    ],
)
def test_the_setting_is_the_one_that_cures_where_pytorchs_hint_does_not(
    reason: str, hint: str | None, remedy: str
) -> None:
    assert break_remedy(reason, hint, library=False) == remedy


def test_a_context_manager_is_named_in_place_of_the_instruction_that_enters_it() -> None:
    words = "it enters a context manager `RLock` that PyTorch does not trace"
    assert plain_break("BEFORE_WITH UserDefinedObjectVariable(RLock)") == words
    words = "it calls an operator `aten.nonzero.default` whose result's size depends on values"
    assert plain_break("Dynamic shape operator `aten.nonzero.default`") == words


def test_an_object_that_pytorch_does_not_trace_is_named() -> None:
    for reason, words in (
        ("missing tp_iter `zip`", "it iterates over an object `zip` that PyTorch does not trace"),
        ("Missing tp_iternext", "it calls next() on an object that PyTorch does not trace"),
        (
            "Failed to convert args/kwargs to proxy `Generator`",
            "it passes an operator an object `Generator` that no graph has",
        ),
    ):
        assert plain_break(reason) == words


def test_what_the_program_calls_is_named_and_what_pytorch_calls_its_own_classes_is_not() -> None:
    for reason, words in (
        ("Failed to trace builtin operator `str`", "it calls `str`, which PyTorch does not trace"),
        ("Unsupported method call `A.__new__`", "it calls `A`, which PyTorch does not trace"),
        ("Attempted to call function marked as skipped `f` in a.py", "it calls `f`, which"),
        ("Graph break due to unsupported builtin time.time", "it calls `time.time`, which"),
        ("Unsupported functorch tracing attempt", "it is called by a transform, such as vmap"),
        ("missing_mp_subscript", "it does something with an object that PyTorch does not trace"),
        (
            "Data dependent operator `aten._local_scalar_dense.default`",
            "it needs the value of a tensor",
        ),
        # 2.6
        ("builtin: str [<class 'torch._dynamo.variables.tensor.TensorVariable'>] False", "`str`"),
        ("skip function save in file serialization.py", "`save`"),
        ("inline in skipfiles: Stack.__init__ | __init__ contextlib.py, skipped", "`Stack`"),
        ("call_method UserDefinedObjectVariable(lock) acquire [] {}", "`lock.acquire`"),
        (
            "call_method ListVariable(length=14) remove [TupleVariable(length=5)] {}",
            "`List.remove`",
        ),
        ("call_function UserDefinedClassVariable(<class 'a.B'>) [] {}", "`a.B`"),
        ("call torch._dynamo.disable() wrapped function f", "`f`"),
        ("call_id with args (ConstDictVariable(),)", "does something with an object"),
        ("skip function graph_break in file decorators.py", "None"),
        ("Unsupported method call", "None"),
        ("sort with non-constant keys", "None"),
    ):
        assert words in str(plain_break(reason))


def test_a_hint_that_says_what_to_change_stands_before_the_general_remedy() -> None:
    move = break_remedy("__class__ assignment", "Move it outside.", library=False)
    assert move == f"PyTorch's hint: Move it outside. Or {ANY[0].lower()}{ANY[1:]}"
    for hint in ("Use something else as the key.", "Remove mutations from the generator.", "If a"):
        assert break_remedy("sort with non-constant keys", hint, library=False) == ANY


def test_in_the_code_of_a_library_only_a_setting_helps() -> None:
    """Nobody changes that code, so the break does not stand above one with a remedy."""
    skipped = "Attempted to call function marked as skipped"
    assert break_remedy(skipped, "Move it out of the graph", library=True) is None
    assert break_remedy("call to Tensor.frobnicate", "Use another function", library=True) is None
    logged, setting = "logging.Logger method not supported", "ignore_logging_functions"
    remedy = break_remedy(logged, f"add it to `torch._dynamo.config.{setting}`", library=True)
    assert remedy is not None
    assert setting in remedy
    called = break_remedy(logged, f"add it to `{setting}`", library=True, caller="train.py:9")
    assert f"{setting}, or call it outside of the compiled function" in str(called)
    assert "Take the logging out" not in remedy
