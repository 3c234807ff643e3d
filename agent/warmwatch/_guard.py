"""The sink for the agent's own errors: counted and recorded, never raised into the training.

The agent lives in somebody's training: what goes wrong in it must neither surface there nor be
lost. Every broad catch of the agent ends in :func:`report`, which counts the error in the slot and
writes it to the journal, where the monitor shows it. Only ``Exception`` is ever caught:
``KeyboardInterrupt`` and ``SystemExit`` belong to the training, and so does what a signal handler
of its own raises.

What the user can set right is said once for each cause through ``warnings``, at the user's line.
"""

from __future__ import annotations

import logging
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from types import CodeType, FrameType
from typing import Any

_logger = logging.getLogger("warmwatch")
_sink: Callable[[str, Exception], None] | None = None
_warned: set[str] = set()


def connect(sink: Callable[[str, Exception], None] | None) -> None:
    """Send what is reported from now on to ``sink(where, error)``; ``None`` for nowhere."""
    global _sink
    _sink = sink


def overhear(sink: Callable[[str, Exception], None]) -> Callable[[], None]:
    """Send what is reported to ``sink`` too; the function that ends it."""
    global _sink
    before = _sink

    def both(where: str, error: Exception) -> None:
        sink(where, error)
        if before is not None:
            before(where, error)

    def end() -> None:
        global _sink
        if _sink is both:  # else somebody has connected another since
            _sink = before

    _sink = both
    return end


def report(where: str, error: Exception) -> None:
    """Count and journal an error of ours that happened in ``where``.

    Raises:
        Exception: ``error`` itself, where it is none of ours: a signal handler of the training
            raised it while we happened to run.
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
    """For who reads our log. What reads it is the user's, and may refuse: a filter that raises."""
    try:
        _logger.log(level, "%s", message, exc_info=error)
    except Exception as refused:  # noqa: BLE001 - a guest: never raised
        pass_on(refused)


def quietly(where: str, tell: Callable[..., Any], *args: Any) -> Any:
    """``tell(*args)``; where it raises that is reported, and ``None`` is given."""
    try:
        return tell(*args)
    except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
        report(where, error)
        return None


def pass_on(error: Exception) -> None:
    """Called where an error that was to be expected is caught: raise it where it is none of ours.

    A ``TimeoutError`` of the training's own alarm is an ``OSError`` too.

    Raises:
        Exception: ``error`` itself: a signal handler of the training raised it.
    """
    if _is_from_signal_handler(error):
        raise error


def _is_from_signal_handler(error: Exception) -> bool:
    """Whether the code of a signal handler that is set is among what ``error`` came through."""
    raised = error.__traceback__
    if raised is None or raised.tb_next is None:
        return False  # a call of the C library failed, in the very function that caught it
    handlers = (signal.getsignal(number) for number in signal.valid_signals())
    codes = {code for handler in handlers if (code := _code_of(handler)) is not None}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def _code_of(handler: object) -> CodeType | None:
    """The code that a handler runs first; ``None`` where it is not Python's."""
    while isinstance(handler, partial):
        handler = handler.func
    functions = (handler, getattr(handler, "__func__", None), vars(type(handler)).get("__call__"))
    codes = (getattr(function, "__code__", None) for function in functions)
    return next((code for code in codes if isinstance(code, CodeType)), None)


def warn_once(message: str) -> None:
    """Tell the user, once for each message in a process, as a warning of the user's own line."""
    if message in _warned:
        return
    _warned.add(message)
    text = f"warmwatch: {message}"
    try:
        warnings.warn(text, stacklevel=_level_of_user())
    except Exception as error:  # noqa: BLE001 - the user turns warnings into errors, not this one
        pass_on(error)
        _log(logging.WARNING, text)


_PASSED_OVER = ("warmwatch", "torch", "importlib", "contextlib")


def _level_of_user() -> int:
    """How far above :func:`warn_once` the first line is that is neither ours nor PyTorch's."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package not in _PASSED_OVER:
            return level
        # ``warnings`` does not count the frames of the import system either
        level += not frame.f_code.co_filename.startswith("<frozen importlib")
        frame = frame.f_back
    return 1
