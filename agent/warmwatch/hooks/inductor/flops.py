"""Floating-point operations of a step: those of each Inductor graph, times its calls in a step.

``_compile_fx_inner`` of ``torch._inductor.compile_fx`` gets every forward and backward graph (torch
2.6 to 2.15), also where Inductor's own cache has the code. Before it compiles, the operations of
the nodes are added up with the formulas of ``torch.utils.flop_counter``, which most versions of
Inductor import themselves. Operations without a formula (Triton kernels of the user, custom and
higher-order operations) are left out and named. Each counts for the type that it computes in: FP8,
bfloat16 and others have peaks of their own. Of a graph from AOTAutograd's cache, which never
gets there, they are counted in its text (``graph_text.py``).

Calls are counted in a few steps after a compilation: what each ``CompiledFxGraph`` calls, its
``current_callable``, is wrapped until three complete steps in a row called the same graphs equally
often, and then restored. So later steps cost nothing. A graph without a count makes the number
unknown, and so do steps that keep differing, and sizes that vary: a count is of one size only.

The type in which an operation computes follows from the dtypes of its tensors. A product of FP8
matrices also gets scales in float32, and attention gets statistics in float32: the narrowest
floating type is that of the matrices.
"""

from __future__ import annotations

import functools
import importlib
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from warmwatch._guard import quietly, report
from warmwatch.hooks.inductor import graph_text
from warmwatch.hooks.inductor.graph_text import Call, UnknownSizeError
from warmwatch.hooks.points import (
    HookPointAbsentError,
    Installed,
    Listener,
    Replaced,
    look_up,
    skip_frames,
)
from warmwatch.shared.values import OTHER_DTYPE

# as PyTorch names them, and as it prints them in a graph
_TYPES = {
    **dict.fromkeys(("bfloat16", "bf16"), "bfloat16"),
    **dict.fromkeys(("float16", "f16"), "float16"),
    **dict.fromkeys(("float32", "f32"), "float32"),
    **dict.fromkeys(("float64", "f64", "complex64", "c64", "complex128", "c128"), OTHER_DTYPE),
}
_NARROWEST_FIRST = ("float8", "bfloat16", "float16", "float32")


def computes_in(types: Iterable[str], *, convolution: bool) -> str:
    """One of ``values.DTYPES``, or ``OTHER_DTYPE`` if it is none of these or unknown."""
    names = (name.removeprefix("torch.") for name in types)
    texts = {"float8" if name.startswith(("float8", "f8")) else _TYPES.get(name) for name in names}
    narrowest = next((name for name in _NARROWEST_FIRST if name in texts), OTHER_DTYPE)
    return "tf32" if narrowest == "float32" and _allows_tf32(convolution) else narrowest


def _allows_tf32(convolution: bool) -> bool:
    torch = sys.modules["torch"]
    try:
        if convolution:
            return bool(torch.backends.cudnn.allow_tf32)
        return bool(torch.get_float32_matmul_precision() != "highest")
    except RuntimeError:  # since 2.9: the program uses the settings of each backend
        backend = torch.backends.cudnn.conv if convolution else torch.backends.cuda.matmul
        return bool(backend.fp32_precision == "tf32")


_MODULE = "torch._inductor.compile_fx"
_COMPILE, _GRAPH, _CALL = "_compile_fx_inner", "CompiledFxGraph", "current_callable"
ALIKE, _MOST_STEPS, MOST_CALLS = 3, 64, 100_000  # a server calls graphs and marks no steps
_MOST_CALLS = 100_000  # of operations in one graph
_MOST_NAMES = 8
_SWEEP = 256  # graphs
# Namespaces whose operations without a formula need next to no arithmetic.
_CHEAP = frozenset({"aten", "prims", "inductor", "_c10d_functional", "c10d", "c10d_functional"})
# Matrix products of ``aten`` without a formula in PyTorch, or not in all versions.
_HEAVY = ("_grouped_mm", "_int_mm", "int4pack", "int8pack", "rnn", "lstm", "gru", "_cdist")
_SCALED = "_scaled_mm"  # of FP8 matrices; torch 2.6 has no formula, and later ones not for all
_ATTENTION = "_scaled_dot_product"  # of each kernel, forward and backward


class Counted(NamedTuple):
    """Operations of one graph; ``None`` if unknown. ``excluded``: names of operations left out.

    ``dtypes``: how many of them compute in each type, by ``computes_in``.
    """

    flops: int | None
    excluded: tuple[str, ...] = ()
    dtypes: Mapping[str, int] = MappingProxyType({})


def operations(graph: Any, formulas: Any) -> Counted:
    """The floating-point operations of an FX graph; ``formulas``: PyTorch's registry."""
    return _counted(_calls(graph), formulas)


def operations_of_text(text: str, formulas: Any) -> Counted:
    """The same of a graph that AOTAutograd's cache has as text."""
    return _counted(graph_text.calls(text), formulas)


def _counted(calls: Iterable[Call], formulas: Any) -> Counted:
    try:
        return _sum(calls, formulas)
    except UnknownSizeError:
        return Counted(None)


def _calls(graph: Any) -> Iterator[Call]:
    for node in graph.nodes:
        if node.op == "call_function":
            yield Call(
                node.target,
                functools.partial(_shapes_of, node),
                functools.partial(_types_of, node),
            )


def _types_of(node: Any) -> list[str]:
    """The dtypes of the tensors that it gets."""
    values = (value.meta.get("val") for value in node.all_input_nodes)
    return [str(value.dtype) for value in values if hasattr(value, "dtype")]


def _shapes_of(node: Any) -> tuple[Any, Any, Any]:
    return (*_shapes((node.args, node.kwargs)), _shapes(node.meta.get("val")))


def _sum(calls: Iterable[Call], formulas: Any) -> Counted:
    by_dtype: Counter[str] = Counter()
    excluded: dict[str, None] = {}
    groups: dict[Any, tuple[str, Any]] = {}  # a graph has thousands of calls of few operations
    for number, (target, shapes, types) in enumerate(calls):
        if number >= _MOST_CALLS:
            return Counted(None)
        if (group := groups.get(target)) is None:
            group = groups[target] = _formula(target, formulas)
        name, formula = group
        if formula is None:
            if name:
                excluded[name] = None
            continue
        try:
            args, kwargs, result = shapes()
            flops = int(formula(*args, **kwargs, out_val=result))
            by_dtype[computes_in(types(), convolution="convolution" in name)] += flops
        except _UNCOUNTABLE:
            excluded[name] = None
    return Counted(by_dtype.total(), tuple(excluded)[:_MOST_NAMES], by_dtype)


def _formula(target: Any, formulas: Any) -> tuple[str, Any]:
    """The name and the formula of an operation; no name if it hardly computes anything."""
    if isinstance(target, str):  # not registered in this process
        return target[:80], None
    packet = getattr(target, "_overloadpacket", None)
    if packet is None:
        # a higher-order operation runs graphs or kernels without a formula
        is_one = type(target).__module__.startswith("torch._") and hasattr(target, "_name")
        return (str(target._name)[:80] if is_one else ""), None
    namespace, _, name = str(getattr(packet, "_qualified_op_name", packet)).partition("::")
    if name.startswith(_ATTENTION):
        formula: Any = _attention_backward if "_backward" in name else _attention
    elif name.startswith(_SCALED):
        formula = _scaled_product
    else:
        formula = formulas.get(packet)
    if formula is not None:
        return f"{namespace}::{name}"[:80], formula
    cheap = namespace in _CHEAP and not any(part in name for part in _HEAVY)
    return ("" if cheap else f"{namespace}::{name}"[:80]), None


def _scaled_product(a: Any, b: Any, *_: Any, **__: Any) -> int:
    rows, depth = a
    return int(2 * rows * depth * b[-1])


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Products of queries and keys, and of scores and values, for each head of the queries.

    Several heads of queries may share one of keys; some versions of PyTorch have no formula for it.
    """
    batch, heads, queries, width = query
    _, _, keys, _ = key
    return int(2 * batch * heads * queries * keys * (width + value[-1]))


def _attention_backward(_grad: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Four products. PyTorch's formula adds the repeated scores, which are no part of an MFU."""
    return 2 * _attention(query, key, value)


# A formula that needs more than shapes (of ragged attention) fails in one of these ways.
_UNCOUNTABLE = (
    *(AssertionError, AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError),
    SyntaxError,  # an argument printed as ``<object ...>``
)


def _shapes(value: Any) -> Any:
    """``value`` with a shape of plain numbers for each tensor and each node that stands for one.

    A size that varies has no number: each call has its own.
    """
    if hasattr(value, "meta") and hasattr(value, "op"):
        return _shapes(value.meta.get("val"))
    if isinstance(value, tuple | list):
        return (list if isinstance(value, list) else tuple)(map(_shapes, value))
    if isinstance(value, dict):
        return {key: _shapes(item) for key, item in value.items()}
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return tuple(map(_plain, value.shape))
    return _plain(value) if type(value).__name__ == "SymInt" else value


def _plain(size: Any) -> int:
    if type(size) is int:
        return size
    number = size.node.maybe_as_int()  # of an expression without a symbol
    if number is None:
        raise UnknownSizeError
    return int(number)


class Calls:
    """Calls of graphs by step, until ALIKE complete steps in a row were alike."""

    def __init__(self, since: int) -> None:
        self._since = since  # the step under way when it begins is not complete
        self._calls: dict[int, Counter[int]] = {}
        self._left = MOST_CALLS

    def called(self, graph: int, steps: int) -> Counter[int] | None:
        """A graph was called after so many steps. The calls of a step, as soon as they are known.

        Empty if they keep differing.
        """
        self._left -= 1
        if self._left < 0:
            return Counter()
        calls = self._calls.get(steps)
        if calls is None:
            if (counter := self._known(steps)) is not None:
                return counter
            calls = self._calls[steps] = Counter()
        calls[graph] += 1
        return None

    def _known(self, steps: int) -> Counter[int] | None:
        """At the first call after a step mark."""
        last = [self._calls.get(number) for number in range(steps - ALIKE, steps)]
        if steps - ALIKE > self._since and last[0] and all(counter == last[0] for counter in last):
            return last[0]
        self._calls.pop(steps - ALIKE, None)
        return Counter() if steps - self._since > _MOST_STEPS else None


class _Graph:
    """A compiled graph, and the function that counts its calls while calls are counted.

    The function replaces the graph's own ``current_callable``, so the class is never modified, and
    a graph that is not counted costs nothing. If another tool has wrapped the function, it is not
    placed a second time. Only the graph holds it: it refers to the code of the graph, and so to
    tensors, such as frozen parameters and the memory of CUDA graphs.
    """

    def __init__(self, compiled: Any, counted: Counted, called: Callable[[int], None]) -> None:
        self._compiled = weakref.ref(compiled)
        self.counted = counted
        self._key, self._called = id(compiled), called
        self._ours: Any = lambda: None  # a weak reference to the function

    def there(self) -> Any:
        """The compiled graph; ``None`` once it is gone."""
        return self._compiled()

    def count(self) -> None:
        """Count its calls from now on."""
        compiled = self._compiled()
        present = getattr(compiled, _CALL, None)
        if present is not None and self._ours() is None:
            ours = self._counting(present)
            self._ours = weakref.ref(ours)
            setattr(compiled, _CALL, ours)

    def restore(self) -> None:
        """Count no more: the graph calls its code directly."""
        compiled = self._compiled()
        present = getattr(compiled, _CALL, None)
        if present is not None and present is self._ours():
            setattr(compiled, _CALL, present.original)

    def _counting(self, original: Callable[..., Any]) -> Any:
        called, key = self._called, self._key

        def count_call(*args: Any, **kwargs: Any) -> Any:
            called(key)
            return original(*args, **kwargs)

        skip_frames(count_call)
        count_call.original = original  # type: ignore[attr-defined]
        return count_call


class GraphCalls:
    """Counts graphs as they are compiled, and their calls for a few steps after that."""

    def __init__(self, listener: Listener, formulas: Any) -> None:
        self._listener, self._formulas = listener, formulas
        self._graphs: dict[int, _Graph] = {}
        self._sweep_at = _SWEEP
        self._calls: Calls | None = None
        self.listening = True

    def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Counted:
        module = args[0] if args else kwargs["gm"]
        counted = operations(module.graph, self._formulas)
        self._listener.post("graph", {"flops": counted.flops, "excluded": counted.excluded})
        return counted

    def after(self, compiled: Any, counted: Counted) -> None:
        """``compiled`` has these operations; the calls of all graphs are counted from now on."""
        if not self.listening or type(compiled).__name__ != _GRAPH:
            return  # of ahead-of-time compilation
        if len(self._graphs) >= self._sweep_at:
            self._sweep()
        graph = self._graphs.get(id(compiled))
        if graph is None or graph.there() is None:
            graph = self._graphs[id(compiled)] = _Graph(compiled, counted, self._called)
        graphs = (graph,) if self._calls is not None else tuple(self._graphs.values())
        self._calls = Calls(self._listener.steps_marked())
        for item in graphs:
            item.count()

    def _sweep(self) -> None:
        """Drop graphs that are gone. A callback of a weak reference would do it sooner, but lose a
        ``KeyboardInterrupt`` that arrives while it runs.
        """
        for key, graph in tuple(self._graphs.items()):
            if graph.there() is None:
                self._graphs.pop(key, None)
        self._sweep_at = max(_SWEEP, 2 * len(self._graphs))

    def loaded(self, pairs: Iterable[tuple[Any, str]]) -> None:
        """AOTAutograd's cache has loaded these: the code of a graph, and its text."""
        for compiled, text in pairs:
            self.after(compiled, operations_of_text(text, self._formulas))

    def _called(self, key: int) -> None:
        """A graph is called, within the user's call."""
        if self._calls is not None:
            try:
                self._count(self._calls, key)
            except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
                self.end()
                report("hooks.flops", error)

    def _count(self, calls: Calls, key: int) -> None:
        counter = calls.called(key, self._listener.steps_marked())
        if counter is None:
            return
        self.end()
        step = self._of_step(counter)
        self._listener.step_counted(step.flops, step.excluded, step.dtypes)

    def _of_step(self, calls: Counter[int]) -> Counted:
        total: int | None = 0 if calls else None
        excluded: dict[str, None] = {}
        by_dtype: Counter[str] = Counter()
        for key, count in calls.items():
            graph = self._graphs.get(key)
            counted = Counted(None) if graph is None else graph.counted
            excluded.update(dict.fromkeys(counted.excluded))
            total = (
                None if total is None or counted.flops is None else total + count * counted.flops
            )
            for dtype, flops in counted.dtypes.items():
                by_dtype[dtype] += count * flops
        names = tuple(excluded)[:_MOST_NAMES]
        return Counted(total, names, by_dtype) if total is not None else Counted(None, names)

    def end(self) -> None:
        """Restore all graphs, so that their calls cost nothing from now on."""
        self._calls = None
        for graph in tuple(self._graphs.values()):
            graph.restore()


skip_frames(GraphCalls._called)


def install(listener: Listener) -> Installed:
    replaced = Replaced()
    counting: list[GraphCalls] = []

    def put() -> None:
        """Wrap it, right after the module was imported."""
        module: Any = sys.modules[_MODULE]
        with look_up():
            # PyTorch may not have imported it yet
            registry = importlib.import_module("torch.utils.flop_counter").flop_registry
            original = getattr(module, _COMPILE)
            fields = getattr(module, _GRAPH).__dataclass_fields__
        if _CALL not in fields:
            raise HookPointAbsentError(f"{_GRAPH}.{_CALL}")
        counting.append(GraphCalls(listener, registry))
        replaced.put(module, _COMPILE, _compiling(counting[0], original))
        if (entry := graph_text.entry_class()) is not None:
            loads = getattr(entry, graph_text.LOADS)
            replaced.put(entry, graph_text.LOADS, _loading(counting[0], loads))

    def uninstall() -> None:
        for calls in counting:
            calls.listening = False
            calls.end()
        replaced.undo()

    return Installed(uninstall=uninstall, late={_MODULE: put})


def _compiling(counting: GraphCalls, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original, updated=())
    def _compile_fx_inner(*args: Any, **kwargs: Any) -> Any:
        if not counting.listening:
            return original(*args, **kwargs)
        counted = quietly("hooks.flops", counting.before, args, kwargs)
        compiled = original(*args, **kwargs)
        if counted is not None:
            quietly("hooks.flops", counting.after, compiled, counted)
        return compiled

    return _compile_fx_inner


def _loading(counting: GraphCalls, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original, updated=())
    def wrap_post_compile(entry: Any, *args: Any, **kwargs: Any) -> Any:
        if not counting.listening:
            return original(entry, *args, **kwargs)
        pairs: list[tuple[Any, str]] = []
        end = quietly("hooks.flops", graph_text.notice, entry, pairs)
        try:
            return original(entry, *args, **kwargs)
        finally:
            if end is not None:
                quietly("hooks.flops", end)
                quietly("hooks.flops", counting.loaded, pairs)

    return wrap_post_compile
