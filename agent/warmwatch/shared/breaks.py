"""Graph breaks: plain words, and what helps. Pure."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

# the setting's name from 2.11 on, and its name in all versions
IGNORED, _IGNORED_BEFORE = "ignore_logging_functions", "ignore_logger_methods"


class _Remedy(NamedTuple):
    """``signs``: one of these is in the reason, as whole words in small letters (torch 2.6 to
    2.15); ``*``: any letters.

    ``words``: what to change in the code; ``setting``: or what to set, which helps in a library's
    code as well. ``hinted``: what PyTorch's hint contains in the versions that have the setting.
    ``of_user``: the user can do that although a library's code breaks.
    """

    signs: tuple[str, ...]
    words: str
    setting: str = ""
    hinted: str = ""
    of_user: bool = False


_OUTSIDE = "run this line outside of the compiled function, and pass its result"
_REMEDIES = (
    _Remedy(  # a whole epoch or step is compiled: each line of it would break next
        ("dataloader*", "optimizer.zero_grad", "zero_grad"),
        "compile the model, or what computes the loss, and leave the loop over batches, backward() "
        "and the optimizer outside of the compiled function",
    ),
    _Remedy(  # called for its effect, so no result can be passed
        ("*rng_state", "fork_rng", "manual_seed"),
        "do this outside of the compiled function; where it must happen between two parts, compile "
        "each part as a function of its own",
    ),
    _Remedy(
        ("missing tp_iter", "__iter__"),
        "pass a list or a tuple, such as list(...), that is made outside of the compiled function",
    ),
    _Remedy(
        ("missing tp_iternext", "__next__"),
        "call next() outside of the compiled function, and pass the value",
    ),
    _Remedy(  # PyTorch's hint calls the class `type`
        ("method call `__getattribute__`",),
        "write super().__getattribute__(name) instead of object.__getattribute__(self, name)",
    ),
    _Remedy(  # PyTorch's hint, to make it outside alone, leads to the next break
        (
            "args/kwargs to proxy `generator`",
            *("torch.generator method", "userdefinedobjectvariable(generator)"),
            "opaque object was created in the middle of the program. `generator`",
        ),
        "seed the generator and draw the random numbers outside of the compiled function, or leave "
        "generator= out: torch.manual_seed() seeds the default generator",
    ),
    _Remedy(
        ("time.time", "time.perf_counter", "time.monotonic"),
        "take the time outside of the compiled function: around its call, also with a decorator",
    ),
    _Remedy(  # passed as a number, it compiles each way of the branch again
        ("random.random", "random.randint", "random.randrange", "random.uniform", "random.choice"),
        f"{_OUTSIDE}: where a branch depends on it, as a tensor that multiplies what the branch "
        "would skip (x + keep * f(x))",
    ),
    _Remedy(  # Python's random numbers are inputs of the graph
        ("unimplemented builtin op on tensor",),
        "compute it outside of the compiled function, such as what follows from a number of "
        "Python's random, and pass the result as a tensor",
    ),
    _Remedy(
        ("args/kwargs to proxy", "call_function args"),
        f"pass tensors and numbers alone to this operator, or {_OUTSIDE}",
    ),
    _Remedy(  # no setting lets it into the graph
        ("tolist() with non-integer",),
        "keep the numbers in a tensor, or call tolist() outside of the compiled function",
    ),
    _Remedy(  # the setting is for numbers, and these are conditions
        ("aten.equal", "aten.allclose"),
        "compare with operators that return a tensor, such as (a == b).all() or "
        f"torch.isclose(a, b).all(), and keep that a tensor, or {_OUTSIDE}",
    ),
    _Remedy(  # the setting lets no operator in that cannot run without data
        (
            *("tensor.item", "aten._local_scalar_dense", "data dependent operator", ".tolist"),
            *("data-dependent expression", "slicing on data-dependent value"),
        ),
        "keep the number a tensor (to log it, copy_() it into one that exists beforehand and read "
        "that outside of the compiled function; to select by it, use a mask), or take it, or draw "
        "it if it is random, outside of the compiled function and pass it",
        "if the number is only computed with (no branch, loop or index of a list depends on it), "
        "set torch._dynamo.config.capture_scalar_outputs (or "
        "TORCHDYNAMO_CAPTURE_SCALAR_OUTPUTS=1)",
    ),
    _Remedy(
        (
            "data-dependent branching",
            "generic_jump",
            "data-dependent jump",
            "data-dependent control",
            "dynamic control flow",
        ),
        "choose with torch.where instead of an `if` on a tensor's value, check with "
        "torch._assert_async instead of raising, or take the branch out of the compiled function",
    ),
    _Remedy(  # PyTorch's hint is a setting, with which the graph breaks for want of a meta kernel
        ("_ctc_loss", "linalg_lstsq", "no meta kernel"),
        _OUTSIDE,
    ),
    _Remedy(
        ("dynamic shape operator", "nonzero"),
        "avoid operators whose result's size depends on values (nonzero, bincount, masks as "
        "indices): compute all and multiply by a mask, or call them outside of the compiled "
        "function",
        "if the result stays in tensors (no .tolist(), no branch on it), set "
        "torch._dynamo.config.capture_dynamic_output_shape_ops (or "
        "TORCHDYNAMO_CAPTURE_DYNAMIC_OUTPUT_SHAPE_OPS=1), with which a few operators, such as "
        "torch.combinations, fail",
    ),
    _Remedy(  # PyTorch's hint is another setting, which takes no category of a warning
        ("_warnings.warn",),
        "take the warning out of the compiled function",
        f"add warnings.warn to torch._dynamo.config.{IGNORED}",
        hinted=IGNORED,
    ),
    _Remedy(  # PyTorch's hint leaves out `config`
        ("tensor.backward",),
        "compile the forward alone, and call backward() outside of the compiled function",
        "set torch._dynamo.config.trace_autograd_ops (and detach what the function returns)",
        hinted="trace_autograd_ops",
    ),
    _Remedy(
        ("logging", "logger"),
        "take the logging out of the compiled function",
        "add the method, such as logging.Logger.warning, to torch._dynamo.config.{ignored}",
    ),
    _Remedy(
        ("print",),
        "take the printing out of the compiled function",
        "if it prints texts and tensors without file=, add print to "
        "torch._dynamo.config.reorderable_logging_functions",
    ),
    _Remedy(  # PyTorch's hint, compiled autograd, loses the hook, or raises
        ("module-level backwards hooks",),
        "register the hook on a parameter (Tensor.register_hook) instead of on the module, outside "
        "of the compiled function",
        of_user=True,
    ),
    _Remedy(
        ("functorch tracing attempt",),
        "compile the function that calls the transform (such as vmap) instead of the one that the "
        "transform calls",
        of_user=True,
    ),
    _Remedy(
        ("sparse tensor",),
        "make it dense (to_dense()), or use it outside of the compiled function",
    ),
    _Remedy(
        ("strided nestedtensor",),
        "make it with layout=torch.jagged, or use it outside of the compiled function",
    ),
    _Remedy(  # called on what the function returns, it leaves `grad` None
        ("tensor.retain_grad",),
        "compile what follows from this tensor as another function, and call retain_grad() between "
        "the two",
    ),
    _Remedy(
        ("unsafe side effect", "non-nullified side effect"),
        "PyTorch traces this part as one operator (an autograd.Function, checkpoint, torch.cond, a "
        "hook), which may not change a list or an attribute: write the value with copy_() into a "
        "tensor that exists beforehand, or return it",
        "set torch._dynamo.config.skip_fwd_side_effects_in_bwd_under_checkpoint (under checkpoint)",
        hinted="skip_fwd_side_effects_in_bwd_under_checkpoint",
    ),
    _Remedy(
        (
            "graph_break()",
            "torch._dynamo.graph_break",
            "user-invoked graph break",
            "skip function graph_break",
        ),
        "the program requests this break itself: remove torch._dynamo.graph_break()",
    ),
    _Remedy(  # around a compiled function, such a mode costs it its compiled code for good
        ("flopcountermode", "*dispatchmode", "commdebugmode"),
        "enter the mode around the uncompiled function alone, in a call of its own: a compiled one "
        "runs eagerly in it and, before PyTorch 2.15, ever after",
        of_user=True,
    ),
    _Remedy(  # a cached_property of Python 3.11 takes a lock
        (
            *("context manager", "generic_context_manager", "with block"),
            *("before_with", "setup_with", "contextlib.py"),  # 2.6
        ),
        "enter the context manager, or call what enters it, outside of the compiled function (a "
        "cached_property does so when it is first read: read it beforehand)",
    ),
    _Remedy(
        ("torch.compiler.disable", "torch._dynamo.disable"),
        "the function is left out of compilation on purpose: call it outside of the compiled one",
    ),
    _Remedy(
        ("rnn, gru",),
        "call it outside of the compiled function",
        "set torch._dynamo.config.allow_rnn, unless its input is packed",
    ),
    _Remedy(
        ("*numpy*", "ndarray*"),
        f"use a torch function in its place, or {_OUTSIDE}",
    ),
    _Remedy(
        ("deepcopy*",),
        "copy a tensor with clone(), and anything else outside of the compiled function "
        "(dataclasses.asdict() copies, too)",
    ),
    _Remedy(
        ("running with fake tensors",),
        f"add a fake implementation of the operator (torch.library.register_fake), or {_OUTSIDE}",
    ),
    _Remedy(
        ("out=",),
        "leave out= away, or pass a contiguous tensor of the result's size",
    ),
    _Remedy(
        ("jit.script*", "scriptmodule*", "torch.jit.isinstance"),
        "compile the module without torch.jit, or call it outside of the compiled function",
    ),
    _Remedy(
        ("async_op=true",),
        "leave async_op=True and wait() away, or call it outside of the compiled function",
    ),
    _Remedy(  # PyTorch's hint is an operator that does not exist
        ("tensor.random_",),
        "draw with torch.randint instead of random_()",
    ),
    _Remedy(
        ("observed exception",),
        f"fix the line if it raises without torch.compile, too; else {_OUTSIDE}",
    ),
    # PyTorch's hints would change PyTorch
    _Remedy(("skip function", "skipfiles", "skipped", "p2p compilation disabled"), _OUTSIDE),
)
# PyTorch's hints that say what to change; others, such as "Avoid calling it", help nobody.
_HELPS = re.compile(
    r"(?:Call|Change|Compile the|Create|Define|Detach|Explicitly set|Move|Remove|Replace|Set"
    r"|Try to construct|Use)\b(?! (?:something else|mutations from))"
)


# A learning rate scheduler replaces step() by a wrapper, which Dynamo skips: the step within
# compiles as a whole.
_BY_SCHEDULER = re.compile(r"\bskip.*?(\w+\.step)\b.* in (?:file )?lr_scheduler\.py")


# 2.6 names the instruction of `with`, and its own class of the object.
_ENTERS = re.compile(r"(?:BEFORE|SETUP)_WITH \w+(?:\((\w+)\))?")


# In 2.6: what is called, after its class. Of PyTorch's own classes, `Deque` is in `DequeVariable`.
_CALLS = re.compile(
    r"(?:builtin:|skip function|inline in skipfiles:) (?!graph_break\b)([A-Za-z_][\w.]*)"
    r"|call_function \w+\(<class '([\w.]+)'>\) "
    r"|call torch\._dynamo\.disable\(\) wrapped function ([\w.]+)"
    r"|call_method (?:(?:UserDefinedObject|Builtin)Variable\((\w+)\)|(\w+)Variable\(.*?\))"
    r" (\w+) [\[(]"
)


_BRANCHES = ("generic_jump", "Data-dependent branching", "Dynamic control flow")
# What it does, by the beginning of PyTorch's reason; `{}`: what the reason names
_DOES = (
    (("missing tp_iter",), "iterates over an object{} that PyTorch does not trace"),
    (("Missing tp_iternext",), "calls next() on an object{} that PyTorch does not trace"),
    (
        ("Failed to convert args/kwargs", "call_function args"),
        "passes an operator an object{} that no graph has",
    ),
    (("Unsupported context manager",), "enters a context manager{} that PyTorch does not trace"),
    (("Observed exception",), "raises an exception{} while PyTorch traces it"),
    (("torch.* op returned non-Tensor",), "calls a function of torch{} that returns no tensor"),
    (("Invalid call to __build_class__",), "defines a class"),
    (("Dynamic shape operator",), "calls an operator{} whose result's size depends on values"),
    (
        ("Attempted to wrap RNN", "TorchDynamo purposely graph breaks on RNN"),
        "calls an RNN, GRU or LSTM, which PyTorch does not trace",
    ),
    (("Unsupported functorch tracing attempt",), "is called by a transform, such as vmap"),
    (
        ("HOP: Unsafe side effect",),
        "changes a list or an attribute in a part that PyTorch traces as one operator",
    ),
    (
        (
            *("Unsupported Tensor.item()", "Data dependent operator `aten._local_scalar"),
            *("Tensor.item", "data dependent operator: aten._local_scalar"),  # 2.6
            *("Could not guard on data-dependent", "Consider annotating your code using torch"),
            "Could not extract specialized integer from data-dependent",
        ),
        "needs the value of a tensor or of a random number, as .item() does",
    ),
    (
        (
            *("Attempted to call function marked as skipped", "Unsupported method call"),
            *("Attempted to inline function marked as skipped", "Unsupported function call"),
            *("Failed to trace builtin operator", "Graph break due to unsupported builtin"),
        ),
        "calls{}, which PyTorch does not trace",
    ),
)
# Names of PyTorch's own classes and of slots of CPython tell a user nothing.
_INTERNAL = re.compile(
    r"(?i)\b(?:tp|nb|sq|mp)_|_mp_|_impl\b|python_type\(\)|richcompare|(?-i:[a-z]Variable\b)"
)
_NAMED = re.compile(r" `([\w.<>]+)`| ([\w.<>]+)$")
# A class that is called: its name is clearer
_CONSTRUCTS = re.compile(r"\.__(?:new|init|call)__$")


_OF_LIBRARY = "call it outside of the compiled function: a library's code breaks the graph"
# Of an autograd.Function, which PyTorch traces as one operator: a setting that lets a line into the
# graph does not help if the line also changes a list or an attribute.
_BACKWARD = "backward"
_OUT_OF_BACKWARD = "take this line out of the backward, which PyTorch traces as one operator"


# Optimizers of PyTorch request a break around their step, in this function.
_REQUESTED = re.compile(r"\bgraph_break(?:\(\)| in )|user-invoked graph break")
_OF_OPTIMIZERS = "_use_grad"
# What DistributedDataParallel does around the forward of the module in it, which compiles by itself
_OF_DDP = re.compile(r"set_runtime_stats_and_log|_rebuild_buckets|_inside_ddp_forward")


def of_ddp(reason: str, *, library: bool) -> bool:
    """Whether DistributedDataParallel breaks the graph, around the module in it."""
    return library and _OF_DDP.search(reason) is not None


def expected_break(reason: str, name: str | None, *, library: bool) -> str | None:
    """Why a graph broke where library code means it to; ``None`` if it is not meant.

    ``name``: the function that breaks.
    """
    if wrapped := _BY_SCHEDULER.search(reason):
        return f"a scheduler wraps `{wrapped[1]}`, which compiles by itself: nothing to change"
    if of_ddp(reason, library=library):
        return "DistributedDataParallel breaks the graph around its module by design"
    if not library or not _REQUESTED.search(reason):
        return None
    whose = "PyTorch's optimizers request" if name == _OF_OPTIMIZERS else "library code requests"
    return f"{whose} this break: nothing to change"


def plain_break(reason: str, name: str | None = None, *, library: bool = False) -> str | None:
    """Why a graph broke, if PyTorch's text is hard to read; ``None``: use PyTorch's text."""
    if reason.startswith(_BRANCHES):
        return "it branches on a tensor's value"
    if expected := expected_break(reason, name, library=library):
        return expected
    if entered := _ENTERS.match(reason):
        named = f" `{entered[1]}`" if entered[1] else ""
        return f"it enters a context manager{named} that PyTorch does not trace"
    if call := _CALLS.match(reason):
        function = _CONSTRUCTS.sub("", ".".join(filter(None, call.groups())))
        return f"it calls `{function}`, which PyTorch does not trace"
    for heads, does in _DOES:
        if head := next(filter(reason.startswith, heads), None):
            match = _NAMED.search(reason, len(head))
            if match or "calls{}" not in does:  # else PyTorch's text says more
                called = _CONSTRUCTS.sub("", match[1] or match[2]) if match else ""
                return f"it {does.format(f' `{called}`' if called else '')}"
    if _INTERNAL.search(reason):
        return "it does something with an object that PyTorch does not trace"
    return None


def _has_sign(remedy: _Remedy, text: str) -> bool:
    return re.search(_any_of(remedy.signs), text) is not None


@cache
def _any_of(signs: tuple[str, ...]) -> str:
    """A pattern for each of them as a whole: `print` is not in "fingerprint"."""
    text = "|".join(re.escape(sign).replace(r"\*", r"\w*") for sign in signs)
    return rf"(?:(?<!\w)|(?=\W))(?:{text})(?:(?<=\W)|(?!\w))"


# It reads how many batches it has seen, and passes a number on which no setting helps.
_OF_BATCH_NORM = "Give BatchNorm a momentum: without one (momentum=None) it is not traced."


def break_remedy_for(value: Any) -> str | None:
    """The remedy for what is recorded of a graph break."""
    if value.library and value.file == "batchnorm.py" and "item()" in value.reason:
        return _OF_BATCH_NORM
    library, caller = value.library, value.caller
    # its first place may be the function that runs eagerly as a whole
    is_backward = any(place.name == _BACKWARD for place in getattr(value, "also", ()))
    name = _BACKWARD if is_backward else value.name
    return break_remedy(value.reason, value.hint, name, library=library, caller=caller)


def break_remedy(
    reason: str,
    hint: str | None,
    name: str | None = None,
    *,
    library: bool,
    caller: str | None = None,
) -> str | None:
    """One sentence; ``None`` if none is known, or the user cannot change the code that breaks.

    ``hint``: PyTorch's, as ``hooks.dynamo.breaks.hint_of`` returns it. ``name``: the function that
    breaks. ``library``: the place is not in the user's own code. ``caller``: the user's line that
    called it.
    """
    if _BY_SCHEDULER.search(reason) or expected_break(reason, name, library=library):
        return None
    lowered = reason.lower()
    remedy = next((sign for sign in _REMEDIES if _has_sign(sign, lowered)), None)
    hint = hint or ""
    outside = _OF_LIBRARY if library and caller else ""
    alone = _OUT_OF_BACKWARD if name == _BACKWARD else _OUTSIDE
    parts = [outside if library else alone]
    if remedy is None and not library and _HELPS.match(hint):
        return f"PyTorch's hint: {hint.removesuffix('.')}. Or {_OUTSIDE}."
    if remedy:
        named = IGNORED if IGNORED in hint else _IGNORED_BEFORE
        is_cure = remedy.hinted in hint and name != _BACKWARD
        setting = remedy.setting.format(ignored=named) if is_cure else ""
        own = remedy.of_user or not library
        parts = [remedy.words, setting] if own else [setting, outside]
    text = ", or ".join(filter(None, parts))
    return f"{text[0].upper()}{text[1:]}." if text else None
