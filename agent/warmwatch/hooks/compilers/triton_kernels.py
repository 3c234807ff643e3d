"""Triton kernels that compile and autotune outside Inductor: at their first launch, within a step.

Inductor calls ``triton.compile``, also for user kernels inside a graph. A ``@triton.jit`` function
calls the same function by another name, ``triton.compiler.compile``. A wrapper of that name sees
exactly the compilations that Inductor's events do not report. ``ASTSource.make_ir`` runs within it
if the kernel is not in Triton's disk cache. ``Autotuner._bench`` runs for each configuration that
``prune_configs`` returned, compiled or not. ``_build`` calls the C compiler for the launcher of a
new signature and for the driver interface. An ordinary launch calls none of them.

Triton's own hooks (``knobs.runtime.jit_cache_hook``, ``knobs.compilation.listener``,
``JITFunction.cache_hook``) stay free: each holds one function, and it belongs to the user. With a
hook set, Triton also serializes the kernel's arguments as JSON. That fails for some kernels: up to
3.6 for each kernel that takes a function.

Of what a kernel was compiled or tuned for, and its difference to earlier specializations, the
journal gets names of arguments, dtypes, numbers and booleans. Of any other value (a string, a
function) it gets only that the value changed. No value of the user's program is passed to ``repr``:
the ``repr`` of a tensor would wait for the GPU.
"""

from __future__ import annotations

import functools
import re
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Any, NamedTuple

from warmwatch.hooks.phases import TRITON_COMPILE, TRITON_TUNE
from warmwatch.hooks.points import Installed, Listener, Replaced, look_up, untraced
from warmwatch.hooks.redaction import HIDDEN
from warmwatch.shared.bounded import OfObjects
from warmwatch.shared.user_code import place

_TYPE = re.compile(r"[\w*<>\[\](), .:-]{1,80}")
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_MOST_KERNELS = 4096
_MOST_COMPARED = 64  # specializations of a kernel to compare a new one with
_ABSENT = "absent"
_MOST_REPORTED = 8  # differences to report


class Entry(NamedTuple):
    """One thing that a kernel is specialized for.

    ``shown``: text that may be reported. ``identity``: compares it with another. ``about``: the
    category of a change.
    """

    shown: str
    identity: object
    about: str


Specialization = Mapping[str, Entry]


def of_kernel(source: Any, options: Mapping[str, Any] | None) -> dict[str, Entry]:
    """What a kernel is compiled for: an ``ASTSource``'s signature and constants, and options."""
    names = tuple(source.fn.arg_names)
    declared = {item.name for item in getattr(source.fn, "params", ()) if item.is_constexpr}
    entries: dict[str, Entry] = {}
    for name, kind in source.signature.items():
        if kind != "constexpr":
            entries[name] = _type(kind)
    for path, value in source.constants.items():
        name, entry = _named(path, names), _value(value)
        # else it is an integer that is 1 in this call
        is_constant = name.partition("[")[0] in declared
        entries[name] = entry._replace(about="python_value") if is_constant else entry
    for path in _aligned(source.attrs):
        entries[f"alignment of {_named(path, names)}"] = Entry("a multiple of 16", 16, "shape")
    for name in _OPTIONS:
        if options and options.get(name) is not None:
            entries[name] = _value(options[name])._replace(about="python_value")
    return entries


def of_tuning(
    keys: Iterable[str], arguments: Mapping[str, Any], names: Iterable[str]
) -> dict[str, Entry]:
    """What a kernel is tuned for: the arguments in its ``key``, and the dtype of each tensor."""
    entries = {name: _value(arguments[name]) for name in keys if name in arguments}
    for name in names:
        dtype = getattr(arguments.get(name), "dtype", None)
        if dtype is not None:
            entries[f"dtype of {name}"] = _type(str(dtype).removeprefix("torch."))
    return entries


class Memory:
    """The specializations of each kernel in this process."""

    def __init__(self) -> None:
        self._known: OfObjects[list[Specialization]] = OfObjects(_MOST_KERNELS)

    def changed(self, owner: Any, now: Specialization) -> tuple[str, str] | None:
        """Reason and category of a recompile; ``None`` the first time.

        Compares with the earlier specialization that differs least.
        """
        if (before := self._known.get(owner)) is None:
            self._known.set(owner, before := [])
        nearest = min((_difference(entries, now) for entries in before), key=len, default=[])
        before.append(now)
        del before[:-_MOST_COMPARED]
        return (
            _as_reason(nearest) if nearest else None
        )  # else the same specialization, for example for another device


_ORDER = ("dtype", "shape", "python_value")


def _difference(old: Specialization, new: Specialization) -> list[tuple[str, str]]:
    """Category and text of each difference."""
    result = []
    for name in {**old, **new}:
        item, other = old.get(name), new.get(name)
        if (item and item.identity) != (other and other.identity):
            shown = (entry.shown if entry else _ABSENT for entry in (item, other))
            abouts = {entry.about for entry in (item, other) if entry}
            about = next(category for category in _ORDER if category in abouts)
            result.append((about, "{}: expected {}, actual {}".format(name, *shown)))
    return result


def _as_reason(differences: list[tuple[str, str]]) -> tuple[str, str]:
    """The text of a reason, the most specific difference first, and its category."""
    ordered = sorted(differences, key=lambda difference: _ORDER.index(difference[0]))
    return "\n".join(text for _, text in ordered[:_MOST_REPORTED]), ordered[0][0]


def _named(path: Any, names: tuple[str, ...]) -> str:
    """The name of the argument at a path: a name, or positions since 3.3."""
    if isinstance(path, str):
        return path
    first, *rest = path if isinstance(path, tuple) else (path,)
    name = names[first] if isinstance(first, int) and first < len(names) else str(first)
    return name + "".join(f"[{place}]" for place in rest)


def _aligned(attributes: Any) -> Iterable[Any]:
    """Paths of the arguments that are known to be divisible by 16."""
    if isinstance(attributes, Mapping):
        return [path for path, kinds in attributes.items() if "divisibility" in str(kinds)]
    properties = getattr(attributes, "arg_properties", {})  # Triton 3.2
    return list(properties.get("tt.divisibility", ()))


def _type(kind: Any) -> Entry:
    text = str(kind)  # a type's name, or a tuple of type names
    shown = text if _TYPE.fullmatch(text) else HIDDEN
    return Entry(shown, text, "shape" if re.fullmatch(r"[iu]\d+", text) else "dtype")


def _value(value: Any) -> Entry:
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    if value is None or isinstance(value, bool | float):
        return Entry(repr(value), (type(value), repr(value)), "python_value")
    if isinstance(value, int):
        return Entry(repr(value), value, "shape")
    if type(value).__name__ == "dtype":
        return _type(str(value).removeprefix("torch."))
    if isinstance(value, tuple):
        parts = [_value(item) for item in value[:16]]
        shown = ", ".join(part.shown for part in parts)
        return Entry(f"({shown})", tuple(part.identity for part in parts), "shape")
    identity = hash(value) if isinstance(value, str) else id(value)
    return Entry(HIDDEN, identity, "python_value")


_KIND = "triton"
_quietly = functools.partial(untraced, "hooks.triton")
# the module that defines it, and those that imported it by name (Triton 3.2)
_BUILDERS = (
    "triton.runtime.build",
    "triton.backends.nvidia.driver",
    "triton.backends.amd.driver",
)
_Reason = tuple[str, str] | None


@dataclass(slots=True)
class _Making:
    """A kernel that a thread compiles or tunes.

    ``left``: configurations still to try. ``verdicts``: results of Triton's cache, one for each
    kernel compiled meanwhile. ``built``: the kernel being compiled was not in the cache.
    """

    owner: Any
    of: Mapping[str, Any]
    why: _Reason
    began: int = field(default_factory=monotonic_ns)
    left: int = 0
    built: bool = False
    verdicts: list[bool] = field(default_factory=list)


class _Thread(threading.local):
    """State of the calling thread. ``due``: an autotuner and how many configurations it has."""

    def __init__(self) -> None:
        self.compiling: list[_Making] = []  # nested, if a compiler compiles
        self.tunings: list[_Making] = []
        self.due: tuple[Any, int] = (None, 0)


class _Reporter:
    """Turns calls of the wrapped functions into listener calls. Must never raise."""

    def __init__(self, listener: Listener) -> None:
        self.listening = True
        self._listener, self._thread = listener, _Thread()
        self._kernels, self._tunings = Memory(), Memory()

    def compile_begins(self, source: Any, options: Mapping[str, Any] | None) -> None:
        function = getattr(source, "fn", None)  # absent for a file in Triton's own IR
        target = _of(getattr(function, "fn", None))
        why = None
        if function is not None:
            why = self._kernels.changed(function, of_kernel(source, options))
        why = None if self._thread.tunings else why  # the tuning has the reason
        self._thread.compiling.append(_Making(source, target, why))
        self._begin(TRITON_COMPILE, self._thread.compiling[-1])

    def refusal(self, source: Any) -> Exception | None:
        """The exception to raise instead of compiling, if the user requested that."""
        function = getattr(source, "fn", None)
        return self._listener.refusal(_of(getattr(function, "fn", None)))

    def built(self) -> None:
        if self._thread.compiling:
            self._thread.compiling[-1].built = True

    def compile_ends(self, source: Any, error: BaseException | None) -> None:
        making = self._ended(source)
        if making is None:
            return
        try:
            self._compiled(making, error)
        finally:
            self._listener.end(TRITON_COMPILE)

    def _ended(self, source: Any) -> _Making | None:
        """Remove and return the entry that compiled ``source``.

        Also drop the unfinished entries inside it: a signal handler may have raised before their
        end.
        """
        open_ones = self._thread.compiling
        if all(making.owner is not source for making in open_ones):
            return None  # its begin was not seen
        while open_ones[-1].owner is not source:
            open_ones.pop()
            self._listener.end(TRITON_COMPILE)
        return open_ones.pop()

    def _compiled(self, making: _Making, error: BaseException | None) -> None:
        if error is None:
            counter = f"cache_{'misses' if making.built else 'hits'}.{_KIND}"
            self._listener.post("counted", {"counter": counter})
            making.verdicts.append(not making.built)
        if self._thread.tunings:  # the autotuner skips a configuration that does not compile
            self._thread.tunings[-1].verdicts += making.verdicts
        else:
            self._report(making, error)

    def build_begins(self) -> None:
        self._listener.begin(TRITON_COMPILE, _of(None))

    def build_ends(self) -> None:
        self._listener.end(TRITON_COMPILE)

    def pruned(self, tuner: Any, configurations: int) -> None:
        self._thread.due = (tuner, configurations)
        while self._thread.tunings and self._thread.tunings[-1].owner is tuner:
            self._thread.tunings.pop()  # a tuning that was interrupted between two trials
            self._listener.end(TRITON_TUNE)

    def trial_begins(self, tuner: Any, arguments: Mapping[str, Any]) -> None:
        tunings = self._thread.tunings
        if tunings and tunings[-1].owner is tuner:
            return
        whose, configurations = self._thread.due
        entries = of_tuning(tuner.keys, {**(tuner.nargs or {}), **arguments}, tuner.arg_names)
        making = _Making(tuner, _of(tuner.base_fn), self._tunings.changed(tuner, entries))
        making.left = configurations if whose is tuner else 1
        tunings.append(making)
        self._begin(TRITON_TUNE, making)

    def trial_ends(self, error: BaseException | None) -> None:
        if not self._thread.tunings:
            return
        making = self._thread.tunings[-1]
        making.left -= 1
        if making.left <= 0 or error is not None:
            self._thread.tunings.pop()
            try:
                self._report(making, error)
            finally:
                self._listener.end(TRITON_TUNE)

    def _begin(self, event: str, making: _Making) -> None:
        self._listener.begin(event, making.of)
        if making.why is not None:
            reason, category = making.why
            values = {"reason": reason, "category": category, **making.of}
            self._listener.post("recompile", values)

    def _report(self, making: _Making, error: BaseException | None) -> None:
        if not isinstance(error, Exception | None):
            return  # an interruption is neither a compilation nor a failure
        values = {**making.of, "seconds": (monotonic_ns() - making.began) / 1e9}
        if making.verdicts:
            values["cache"] = "hit" if all(making.verdicts) else "miss"
        if making.why is not None:
            values["reason"], values["category"] = making.why
        if error is not None:
            values["failure"] = type(error).__name__
        self._listener.post("compilation", values)


def install(listener: Listener) -> Installed:
    with look_up():
        from triton import compiler
        from triton.compiler.compiler import ASTSource
        from triton.runtime import autotuner, jit

        wanted = (
            (compiler, "compile", _compile),
            (ASTSource, "make_ir", _make_ir),
            (autotuner.Autotuner, "prune_configs", _prune_configs),
            (autotuner.Autotuner, "_bench", _bench),
        )
        rows = [(owner, name, getattr(owner, name), wrap) for owner, name, wrap in wanted]
        modules = [module for name in _BUILDERS if (module := sys.modules.get(name))]
        rows += [(m, "_build", m._build, _build) for m in modules if hasattr(m, "_build")]
        bind = getattr(jit.JITFunction, "_do_compile", None)  # since 3.5
    reporter = _Reporter(listener)
    placed = [
        (owner, name, original, wrap(reporter, original)) for owner, name, original, wrap in rows
    ]
    if bind is not None:
        placed.append((jit.JITFunction, "_do_compile", bind, _bound(bind, *placed[0][2:])))

    replaced = Replaced()

    def uninstall() -> None:
        reporter.listening = False
        replaced.undo()

    replaced.put_all((owner, name, ours) for owner, name, _, ours in placed)
    return Installed(uninstall=uninstall)


def _compile(reporter: _Reporter, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:
        if not reporter.listening:
            return original(*args, **kwargs)
        source = args[0] if args else kwargs.get("src")
        if refusal := _quietly(reporter.refusal, source):
            raise refusal
        options = kwargs.get("options", args[2] if len(args) > 2 else None)
        try:
            _quietly(reporter.compile_begins, source, options)
            kernel = original(*args, **kwargs)
        except BaseException as error:
            _quietly(reporter.compile_ends, source, error)
            raise
        _quietly(reporter.compile_ends, source, None)
        return kernel

    return compile


def _make_ir(reporter: _Reporter, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def make_ir(self: Any, *args: Any, **kwargs: Any) -> Any:
        _quietly(reporter.built)
        return original(self, *args, **kwargs)

    return make_ir


def _prune_configs(reporter: _Reporter, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def prune_configs(self: Any, *args: Any, **kwargs: Any) -> Any:
        configurations = original(self, *args, **kwargs)
        _quietly(lambda: reporter.pruned(self, len(configurations)))
        return configurations

    return prune_configs


def _bench(reporter: _Reporter, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _bench(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not reporter.listening:
            return original(self, *args, **kwargs)
        try:
            _quietly(reporter.trial_begins, self, kwargs)
            timings = original(self, *args, **kwargs)
        except BaseException as error:
            _quietly(reporter.trial_ends, error)
            raise
        _quietly(reporter.trial_ends, None)
        return timings

    return _bench


def _build(reporter: _Reporter, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _build(*args: Any, **kwargs: Any) -> Any:
        if not reporter.listening:
            return original(*args, **kwargs)
        try:
            _quietly(reporter.build_begins)
            return original(*args, **kwargs)
        finally:
            _quietly(reporter.build_ends)

    return _build


def _bound(
    original: Callable[..., Any], compile: Callable[..., Any], ours: Callable[..., Any]
) -> Callable[..., Any]:
    """A kernel binds ``compile`` at its first launch: patch one that was launched before."""

    @functools.wraps(original)
    def _do_compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.compile is compile:
            self.compile = ours
        return original(self, *args, **kwargs)

    return _do_compile


def _of(function: Any) -> dict[str, Any]:
    """Name, file and line of the user's function, as far as they are known."""
    code = getattr(function, "__code__", None)
    where = {} if code is None else place(code.co_name, code.co_filename, code.co_firstlineno)
    return {**where, "kind": _KIND}
