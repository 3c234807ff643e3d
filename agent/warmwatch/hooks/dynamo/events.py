"""Begin and end of every compile event, and the function that it compiles.

PyTorch calls ``ChromiumEventLogger.log_event_start`` and ``log_event_end`` for each event, also for
autotuning and recording at run time (torch 2.6 and later). The methods are wrapped on the class.
Their signatures grew over the versions, so arguments are passed through. Another tool may wrap them
too and later restore what it found, which removes our wrapper. More ends than begins show that no
wrapper of ours is called any more, and the begin is wrapped again. An earlier wrapper may come back
inside another tool's, or around it: of several, the outermost one reports.

At run time Dynamo would trace the agent's frames. ``torch.compiler.disable`` costs as much as the
agent itself. So Dynamo skips the wrapper, which turns Dynamo off for the agent's part alone.

Dynamo's own start and end callbacks repeat the outermost events, and replace them in a PyTorch
without events. ``torch._dynamo.reset()`` clears them, so the begin of the next event installs them
again, before the callbacks run. An exception in one would reach the training, so they only call the
listener.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import threading
from _thread import get_ident
from collections.abc import Callable, Mapping
from math import prod
from types import CodeType, FrameType
from typing import Any

from warmwatch._guard import quietly, report
from warmwatch.hooks.dynamo.targets import AROUND, BACKWARD, INSTANCES, target
from warmwatch.hooks.points import HookPointAbsentError, Installed, Listener, look_up, skip_frames
from warmwatch.shared import fallbacks
from warmwatch.shared.bounded import MOST_THREADS, Bounded, OfObjects
from warmwatch.shared.phrases import resumed
from warmwatch.shared.user_code import is_library, nearest, of_code
from warmwatch.shared.values import NEW_INSTANCE

_NAME = "event_name"
# CallbackTrigger's names (torch 2.8 and later) -> an event with a known phase. The other names span
# several phases, which only the events can separate.
_EVENTS = {
    "TRITON_AUTOTUNING": "autotuning",
    "CUDAGRAPH_RECORDING": "cudagraph",
}
_PREFIX = "callback "


def install(listener: Listener) -> Installed:
    with look_up():
        import torch

        set_eval_frame = torch._C._dynamo.eval_frame.set_eval_frame
        logger = torch._dynamo.utils.ChromiumEventLogger
        starts = _Wrap(set_eval_frame, logger, "log_event_start")
        ends = _Wrap(set_eval_frame, logger, "log_event_end")

    def begin_compilation(event: str) -> None:
        target = being_compiled()
        unfused = target.pop("unfused", None)
        listener.begin(event, target)
        if unfused is not None:
            listener.post("fallback", {"setting": fallbacks.FLEX, **unfused})

    def end(event: str) -> None:
        if ends.count > starts.count:
            ends.count = starts.count = 0
            starts.renew()
        listener.end(event)

    with contextlib.ExitStack() as undo:
        undo.callback(starts.remove)
        starts.put(
            listener.begin,
            {
                EVENT: begin_compilation,
                BACKWARD_EVENT: lambda event: listener.begin(event, backward_being_compiled()),
                COMPILED_AUTOGRAD_EVENT: lambda event: listener.begin(event, dict(BACKWARD)),
            },
            interrupted=listener.end,
        )
        undo.callback(ends.remove)
        ends.put(end, {})
        return Installed(uninstall=undo.pop_all().close)


class _Inside(threading.local):
    """Whether the calling thread is in one of the wrappers.

    Not a set of thread numbers: a forked child would keep those of threads that it does not have.
    """

    wrapper = False


class _Wrap:
    """Wraps one method of ``owner``: each event first calls a function with the event's name.

    Of wrappers that call each other, only the outermost one reports.

    Attributes:
        count: the number of events.
    """

    def __init__(self, set_eval_frame: Callable[[Any], Any], owner: Any, method: str) -> None:
        self._set_eval_frame, self._owner, self._method = set_eval_frame, owner, method
        self._original = self._ours = getattr(owner, method)
        self._listening = False
        self._inside = _Inside()
        self.count = 0

    def put(
        self,
        callback: Callable[[str], None],
        special: Mapping[str, Callable[[str], None]],
        interrupted: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Wrap the method. ``special``: what to call for some events instead of ``callback``.

        ``interrupted``: what to call if an exception of the training ends such a call, such as a
        ``KeyboardInterrupt``. PyTorch then never learns of the event.
        """
        self._callback, self._special, self._listening = callback, special, True
        self._interrupted = interrupted
        self._wrap()

    def renew(self) -> None:
        """Wrap the present method, which calls no wrapper of ours: so they never stack up."""
        if self._listening and getattr(self._owner, self._method) is not self._ours:
            self._wrap()

    def remove(self) -> None:
        """Restore the original, unless another tool has wrapped ours meanwhile."""
        self._listening = False
        if self._owner.__dict__.get(self._method) is self._ours:
            setattr(self._owner, self._method, self._original)

    def _wrap(self) -> None:
        original = getattr(self._owner, self._method)
        callback, special, inside = self._callback, self._special, self._inside
        set_eval_frame = self._set_eval_frame

        @functools.wraps(original, updated=())
        def wrapper(logger: Any, *args: Any, **kwargs: Any) -> Any:
            if inside.wrapper or not self._listening:
                return original(logger, *args, **kwargs)
            traces = set_eval_frame(None)
            event = None
            try:
                try:
                    self.count += 1
                    event = args[0] if args else kwargs[_NAME]
                    special.get(event, callback)(event)  # it may compile: its events count, too
                except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
                    report("hooks.events", error)
            except BaseException:
                if event is not None:
                    quietly("hooks.events", self._interrupted, event)
                raise
            finally:
                if traces is not None:
                    set_eval_frame(traces)
            try:
                inside.wrapper = True
                return original(logger, *args, **kwargs)
            finally:
                inside.wrapper = False

        self._original, self._ours = original, wrapper
        skip_frames(wrapper)
        setattr(self._owner, self._method, wrapper)


def install_callbacks(listener: Listener) -> Installed:
    with look_up():
        import torch

        disable, handler = torch.compiler.disable, torch._dynamo.callback.callback_handler
        lists = handler.start_callbacks, handler.end_callbacks
    begun: list[str] = []

    def start(args: tuple[Any, ...]) -> None:
        begun.append(_event(args))
        listener.begin(begun[-1])

    def end(args: tuple[Any, ...]) -> None:
        # The last to end may not be the first to start; the handler counts them.
        listener.end(begun.pop() if begun else _event(args))

    started = disable(lambda *args: quietly("hooks.callbacks", start, args))
    ended = disable(lambda *args: quietly("hooks.callbacks", end, args))
    pairs = tuple(zip(lists, (started, ended), strict=True))

    def arm() -> None:
        for callbacks, ours in pairs:
            if ours not in callbacks:
                callbacks.append(ours)

    def uninstall() -> None:
        for callbacks, ours in pairs:
            if ours in callbacks:
                callbacks.remove(ours)

    with contextlib.ExitStack() as undo:
        undo.callback(uninstall)
        arm()
        undo.pop_all()
    return Installed(uninstall=uninstall, rearm=arm)


def _event(args: tuple[Any, ...]) -> str:
    trigger = getattr(getattr(args[0], "callback_trigger", None), "name", "") if args else ""
    return _PREFIX + _EVENTS.get(trigger, "")


EVENT = "dynamo"
BACKWARD_EVENT = "entire_backward_compile"  # of a backward that compiles when it first runs
COMPILED_AUTOGRAD_EVENT = "compiled_autograd"
_MODULE, _FUNCTION = "torch._dynamo.convert_frame", "_compile"
_LOCALS = ("code", "compile_id", "one_graph", "locals", "closure")
_STATIC, _AUTOMATIC = "assume_static_by_default", "automatic_dynamic_shapes"
_MOST_FRAMES = 24
# What ``flex_attention`` compiles if it is called uncompiled (torch 2.6 to 2.15).
FLEX, UNFUSED = "torch.nn.attention.flex_attention", "_flex_attention_hop_wrapper"


def require(listener: Listener) -> Installed:  # noqa: ARG001 - the signature of every install
    """Check that ``_compile`` exists and has the local variables that this file reads."""
    with look_up():
        from torch._dynamo import config, convert_frame

        _ = (getattr(config, _STATIC), getattr(config, _AUTOMATIC))
        value = inspect.unwrap(getattr(convert_frame, _FUNCTION)).__code__
    names = {*value.co_varnames, *value.co_cellvars}
    if absent := [name for name in _LOCALS if name not in names]:
        raise HookPointAbsentError(f"{_FUNCTION}: {absent[0]}")
    return Installed()


def being_compiled() -> dict[str, Any]:
    """Compile id, name, file, line and code of the present compilation; empty if unknown.

    ``fullgraph``: a graph break raises. ``instance``: the number of the module, if another one with
    the same code was compiled before, but not this one; ``class``: its class, or ``function`` if a
    wrapper calls one; ``anew``: an earlier one of that class is gone. ``caller``: the user's line
    that called library code, such as ``train.py:31``; empty if there is none. ``dynamic``: all
    sizes are dynamic, or none; absent by default, where only changed sizes are. ``again``: it was
    compiled before, and ``torch._dynamo.reset()`` dropped the result. ``unfused``: the user's
    function and line that called ``flex_attention`` uncompiled, and the bytes of its scores.
    """
    try:
        values = _compiling()
        compile_id, thread = values.get("compile_id"), get_ident()
        latest = _latest.get(thread)
        if compile_id is None or latest is None or latest[0] is not compile_id:
            target = _identified(values, values.get("code"), compile_id)
            latest = _latest[thread] = compile_id, target
        return dict(latest[1])
    except Exception as error:  # noqa: BLE001 - the event is reported without it
        report("hooks.code", error)
        return {}


def backward_being_compiled() -> dict[str, Any]:
    """The compile id of a backward, which is that of its forward; empty if unknown."""
    try:
        guards = sys.modules.get("torch._guards")
        compile_id = guards.CompileContext.current_compile_id() if guards else None
        return {} if compile_id is None else {"id": str(compile_id), "backward": True}
    except Exception as error:  # noqa: BLE001 - the event is reported without it
        report("hooks.backward_id", error)
        return {}


def code_being_compiled() -> CodeType | None:
    """The code that Dynamo compiles on this thread; ``None`` if unknown."""
    code = _compiling().get("code")
    return code if isinstance(code, CodeType) else None


def must_be_one_graph() -> bool:
    """Whether a graph break raises in what Dynamo compiles on this thread; called at its end."""
    compiling = _compiling()
    # since torch 2.9, at the end of a compilation: ``torch._dynamo.error_on_graph_break``
    region = getattr(compiling.get("convert_frame_box"), "error_on_graph_break", None)
    return compiling.get("one_graph") is True or region is True


def arguments_being_compiled() -> Any:
    """The arguments of the call that Dynamo compiles on this thread; ``None`` if unknown."""
    return _compiling().get("locals")


def _compiling() -> Mapping[str, Any]:
    """The local variables of the innermost ``_compile`` on the stack; empty if there is none."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        is_named_so = frame.f_code.co_name == _FUNCTION
        if is_named_so and frame.f_globals.get("__name__") == _MODULE:
            return frame.f_locals
        frame = frame.f_back
    return {}


def _identified(compiled: Mapping[str, Any], code: Any, compile_id: Any) -> dict[str, Any]:
    if not isinstance(code, CodeType):
        return {}
    values: dict[str, Any] = {"id": None if compile_id is None else str(compile_id)}
    is_first = getattr(compile_id, "frame_compile_id", None) == 0
    again, digest = _remembered(code, is_first=is_first)
    if not code.co_filename.endswith(AROUND):
        values["code"] = digest
    if compiled.get("one_graph") is True:
        values["fullgraph"] = True
    if (dynamic := _dynamic()) is not None:
        values["dynamic"] = dynamic
    if again:
        values["again"] = True
    called = compiled.get("locals"), compiled.get("closure") or ()
    instance, of_class, anew = INSTANCES.begun(code, values["id"], *called)
    if instance > 1:
        values["instance"] = instance
    if of_class:
        values["class"] = of_class
    if anew:
        values["anew"] = True
    names = compiled.get("globals")
    module = names.get("__name__") if isinstance(names, dict) else None
    if is_library(code.co_filename, module):
        user = nearest(sys._getframe(1))
        values["caller"] = f"{user['file']}:{user['line']}" if user else ""
        if code.co_name == UNFUSED and module == FLEX:
            values["unfused"] = {**(user or {}), **_scores(compiled.get("locals"))}
    return {**values, **target(code, compiled.get("locals"), compile_id, module)}


def _scores(values: Any) -> dict[str, int]:
    """Bytes of the scores that unfused ``flex_attention`` materializes for these arguments.

    ``math_attention`` computes them in float32, or in float64 for such queries (torch 2.6 to 2.15).
    Empty if the sizes are unknown.
    """
    off = sys.modules["torch"]._C
    try:
        # no code of a tensor subclass, nor of a mode, of the program
        with off.DisableTorchFunction(), off._DisableTorchDispatch():
            query, key = values["args"][:2]
            batch, heads, length, _ = query.shape
            sizes = batch, heads, length, key.shape[-2], max(4, query.dtype.itemsize)
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError):
        return {}  # RuntimeError: a nested tensor has no shape
    # arithmetic with symbols would add guards
    return {"score_bytes": prod(sizes)} if all(type(size) is int for size in sizes) else {}


def _dynamic() -> bool | None:
    """Whether all sizes are dynamic in this compilation, or none; ``None``: only changed sizes.

    ``torch.compile(dynamic=...)`` sets these settings while it compiles (torch 2.6 to 2.15).
    """
    config = sys.modules.get("torch._dynamo.config")
    if getattr(config, _STATIC, True) is False:
        return True
    return False if getattr(config, _AUTOMATIC, True) is False else None


# The code objects that Dynamo compiled, by id, with their hashes. Dynamo's cache entries live as
# long as the code object: if one of these compiles as the first of its frame, a reset dropped them.
_MOST_CODES = 4096
_compiled: OfObjects[str] = OfObjects(_MOST_CODES)
# What follows a graph break is another code object after a reset. By file, name and hash: whether
# it was compiled before the last reset, and not since
_rests: Bounded[tuple[str, str, str], bool] = Bounded(_MOST_CODES)


def _remembered(code: CodeType, *, is_first: bool) -> tuple[bool, str]:
    """Whether Dynamo compiled this before and dropped it, and its hash. Remembers it.

    ``is_first``: the code has no compiled entry now.
    """
    before = _compiled.get(code)
    digest = before or of_code(code)
    _compiled.set(code, digest)
    again = is_first and before is not None
    if not resumed(code.co_name):
        if again:
            _rests.update(dict.fromkeys(_rests, True))
        return again, digest
    rest = code.co_filename, code.co_name, digest
    again = again or (is_first and _rests.get(rest, False))
    _rests[rest] = False
    return again, digest


# What each thread compiles, with PyTorch's compile id: several listeners ask (the agent, the pytest
# plugin), and the code and its module are remembered once.
_latest: Bounded[int, tuple[Any, dict[str, Any]]] = Bounded(MOST_THREADS)


_PLACE = ("name", "file", "line")  # PyTorch's own name is that of the code object
_CIRCUMSTANCES = (*_PLACE, "caller", "dynamic", "again", "class", "anew")
_TARGET = (*_PLACE, "code", "caller")
_OF_REASON = ("reason", "category", "last_batch", "parameter", "actual")


class Compiling:
    """What each thread compiles with Dynamo, as known at the begin of the compilation.

    Each listener combines it with PyTorch's compilation record here, so that their counts agree.
    """

    def __init__(self) -> None:
        self._begun: Bounded[int, Mapping[str, Any]] = Bounded(MOST_THREADS)
        self._reasons: Bounded[int, dict[str, Any]] = Bounded(MOST_THREADS)
        # by compile id, as ids restart after a reset: of the latest one
        self._targets: Bounded[str, dict[str, Any]] = Bounded(_MOST_CODES)

    def begun(self, thread: int, target: Mapping[str, Any]) -> Mapping[str, Any]:
        """``target``; of a backward, with the name and place of its forward."""
        if target.get("backward"):
            return {**self._targets.get(target["id"], {}), **target}
        if "id" not in target:
            return target
        self._begun[thread] = target
        self._reasons.pop(thread, None)
        if target["id"] is not None:
            self._targets.pop(target["id"], None)  # the latest must come last
            self._targets[target["id"]] = {key: target[key] for key in _TARGET if key in target}
        return target

    def code(self, compile_id: Any) -> str | None:
        """The code of the function that was last compiled with this id.

        Of a backward, PyTorch reports only the id.
        """
        return self._targets.get(compile_id, {}).get("code")

    def recompile(self, thread: int, values: Mapping[str, Any]) -> None:
        """``thread`` compiles something again now; ``values``: of its fact."""
        self._reasons[thread] = {key: values[key] for key in _OF_REASON if key in values}

    def refused(self, thread: int) -> dict[str, Any]:
        """Why ``thread`` cannot use what is compiled, at the recompile limit: ``reason``,
        ``category`` and ``anew``.
        """
        anew = {"anew": True} if "anew" in self._begun.get(thread, {}) else {}
        return {**self._reasons.get(thread, {}), **anew}

    def circumstances(self, thread: int) -> dict[str, Any]:
        """What is known of what ``thread`` compiles: the keys of ``_CIRCUMSTANCES``."""
        begun = self._begun.get(thread, {})
        return {key: begun[key] for key in _CIRCUMSTANCES if key in begun}

    def ended(self, thread: int, values: Mapping[str, Any]) -> dict[str, Any]:
        """``values`` of a forward compilation that ended, with what is known since its begin.

        The reasons reported at the begin replace the single one in PyTorch's record.
        """
        ended, circumstances = dict(values), self.circumstances(thread)
        reasons, begun = self._reasons.pop(thread, None), self._begun.pop(thread, {})
        if ended.get("id") != begun.get("id"):
            circumstances = {
                key: value for key, value in circumstances.items() if key not in _PLACE
            }
        ended.update(circumstances)  # at the recompile limit PyTorch's record has no name
        if "failure" in ended and reasons is None and "reason" not in ended:
            ended.pop("category", None)  # nothing was compiled before
        if "category" in ended and reasons is not None:
            ended.update(reasons)
        elif "category" in ended and "instance" in begun:
            ended["category"] = NEW_INSTANCE
            ended.pop("reason", None)
        if ended.get("category") == NEW_INSTANCE and "instance" in begun:
            ended["instance"] = begun["instance"]
        return ended
