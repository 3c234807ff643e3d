"""The sink for the agent's own errors: counted and recorded, never raised into the training.

An error of the agent must neither surface in the training nor be lost. Every broad catch ends in
:func:`report`, which counts the error in the slot and writes it to the journal; the monitor shows
both. Only ``Exception`` is ever caught: ``KeyboardInterrupt``, ``SystemExit`` and exceptions that a
signal handler or another thread raises in the agent's code belong to the training.

Errors that the user can correct are reported once each through ``warnings``, at the user's line.
"""

from __future__ import annotations

import logging
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from opcode import opmap
from types import CodeType, FrameType, FunctionType
from typing import Any

_logger = logging.getLogger("warmwatch")
_sink: Callable[[str, Exception], None] | None = None
_warned: set[str] = set()
_MOST_WARNED = 256


def connect(sink: Callable[[str, Exception], None] | None) -> None:
    """Send reports to ``sink(where, error)`` from now on; ``None``: discard them."""
    global _sink
    _sink = sink


def also_connect(sink: Callable[[str, Exception], None]) -> Callable[[], None]:
    """Send reports to ``sink``, too; returns the function that ends it."""
    global _sink
    before = _sink

    def both(where: str, error: Exception) -> None:
        sink(where, error)
        if before is not None:
            before(where, error)

    def end() -> None:
        global _sink
        if _sink is both:  # unless another sink was connected meanwhile
            _sink = before

    _sink = both
    return end


def report(where: str, error: Exception) -> None:
    """Count and journal an error of the agent that happened in ``where``.

    Raises:
        Exception: ``error`` itself, if a signal handler or another thread of the training raised
            it while the agent's code ran.
    """
    pass_on(error)
    _log(logging.DEBUG, f"swallowed in {where}", error)
    try:
        if _sink is not None:
            _sink(where, error)
    except Exception as failed:  # noqa: BLE001 - there is no other sink
        pass_on(failed)
        _log(logging.DEBUG, "the sink failed", failed)


def _log(level: int, message: str, error: Exception | None = None) -> None:
    """Write to the agent's log. The user's handlers and filters may raise."""
    try:
        _logger.log(level, "%s", message, exc_info=error)
    except Exception as refused:  # noqa: BLE001 - a guest: never raised
        pass_on(refused)


def quietly(where: str, function: Callable[..., Any], *args: Any) -> Any:
    """The result of ``function(*args)``; reports an exception and returns ``None``."""
    try:
        return function(*args)
    except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
        report(where, error)
        return None


def pass_on(error: Exception) -> None:
    """Raise ``error`` if a signal handler or another thread of the training raised it.

    Call it wherever an expected error is caught: the ``TimeoutError`` of a training's alarm is an
    ``OSError``, too.

    Raises:
        Exception: ``error`` itself.
    """
    if _is_from_signal_handler(error) or _is_from_another_thread(error):
        raise error


def _is_from_signal_handler(error: Exception) -> bool:
    """Whether the traceback of ``error`` contains the code of a registered signal handler."""
    raised = error.__traceback__
    if raised is None or raised.tb_next is None:
        return False  # raised by a C function in the frame that caught it
    handlers = (signal.getsignal(number) for number in signal.valid_signals())
    codes = {code for handler in handlers if (code := _code_of(handler)) is not None}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


_RAISES = frozenset(opmap[name] for name in ("RAISE_VARARGS", "RERAISE"))
# Built-in types that C code raises without arguments.
_BARE = (StopIteration, StopAsyncIteration, MemoryError)
# Packages whose C code may raise exceptions of their own in the agent's code.
_OWN_TYPES = (frozenset(sys.stdlib_module_names) | {"warmwatch", "torch", "triton"}) - {"__main__"}


def _is_from_another_thread(error: Exception) -> bool:
    """Whether another thread raised ``error`` here with ``PyThreadState_SetAsyncExc``.

    Timeouts of libraries and of notebooks do that. Python raises such an exception between two
    instructions, where no ``raise`` is, and creates it from its type, without arguments: only an
    ``__init__`` of its own can add some.
    """
    at, kind = error.__traceback__, type(error)
    if at is None or (error.args and not isinstance(kind.__init__, FunctionType)):
        return False
    while at.tb_next is not None:
        at = at.tb_next
    if at.tb_frame.f_code.co_code[at.tb_lasti] in _RAISES:
        return False
    package = kind.__module__.partition(".")[0]
    if package == "builtins":
        return not issubclass(kind, _BARE)
    return package not in _OWN_TYPES


def _code_of(handler: object) -> CodeType | None:
    """The code that a handler runs first; ``None`` if it is not Python code."""
    while isinstance(handler, partial):
        handler = handler.func
    functions = (handler, getattr(handler, "__func__", None), vars(type(handler)).get("__call__"))
    codes = (getattr(function, "__code__", None) for function in functions)
    return next((code for code in codes if isinstance(code, CodeType)), None)


def warn_once(message: str) -> None:
    """Issue a Python warning at the user's line, once per message and process.

    After ``_MOST_WARNED`` messages there are no more.
    """
    if message in _warned or len(_warned) >= _MOST_WARNED:
        return
    _warned.add(message)
    text = f"warmwatch: {message}"
    try:
        warnings.warn(text, stacklevel=_level_of_user())
    except Exception as error:  # noqa: BLE001 - the user may turn warnings into errors
        pass_on(error)
        _log(logging.WARNING, text)


_PASSED_OVER = ("warmwatch", "torch", "importlib", "contextlib")


def _level_of_user() -> int:
    """The ``stacklevel`` of the innermost frame outside Warmwatch and PyTorch."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package not in _PASSED_OVER:
            return level
        # ``warnings`` does not count frames of the import system
        level += not frame.f_code.co_filename.startswith("<frozen importlib")
        frame = frame.f_back
    return 1
