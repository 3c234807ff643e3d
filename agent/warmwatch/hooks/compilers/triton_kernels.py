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
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Any

from warmwatch.hooks.compilers.triton_specializations import Memory, of_kernel, of_tuning
from warmwatch.hooks.phases import TRITON_COMPILE, TRITON_TUNE
from warmwatch.hooks.points import Installed, Listener, Replaced, look_up, untraced
from warmwatch.shared.user_code import place

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
