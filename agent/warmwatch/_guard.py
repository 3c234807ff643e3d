"""The one sink for the agent's own errors.

The agent lives in somebody's training: what goes wrong in it must neither surface there nor be
lost. Every broad catch of the agent ends in :func:`report`, which counts the error in the slot and
writes it to the journal, where the monitor shows it. Only ``Exception`` is ever caught:
``KeyboardInterrupt`` and ``SystemExit`` belong to the training.

What the user can set right is said once for each cause through ``warnings``, at the user's line.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable
from types import FrameType

_logger = logging.getLogger("warmwatch")
_sink: Callable[[str, str], None] | None = None
_warned: set[str] = set()


def connect(sink: Callable[[str, str], None] | None) -> None:
    """Send what is reported from now on to ``sink(where, message)``; ``None`` for nowhere."""
    global _sink
    _sink = sink


def report(where: str, error: Exception) -> None:
    """Count and journal an error of ours that happened in ``where``."""
    _logger.debug("swallowed in %s", where, exc_info=error)
    try:
        if _sink is not None:
            _sink(where, f"{type(error).__name__}: {error}")
    except Exception:
        _logger.debug("the sink failed", exc_info=True)


def warn_once(message: str) -> None:
    """Tell the user, once for each message in a process, as a warning of the user's own line."""
    if message in _warned:
        return
    _warned.add(message)
    text = f"warmwatch: {message}"
    try:
        warnings.warn(text, stacklevel=_level_of_user())
    except Exception:  # noqa: BLE001 - the user turns warnings into errors, but never this one
        _logger.warning("%s", text)


_PASSED_OVER = ("warmwatch", "torch", "importlib")


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
