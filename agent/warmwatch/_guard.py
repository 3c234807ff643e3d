"""The one sink for the agent's own errors.

The agent lives in somebody's training: what goes wrong in it must neither surface there nor be
lost. Every broad catch of the agent ends in :func:`report`, which counts the error in the slot and
writes it to the journal, where the monitor shows it. Only ``Exception`` is ever caught:
``KeyboardInterrupt`` and ``SystemExit`` belong to the training.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

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
    """Tell the user, once for each message in a process, through the ``warmwatch`` logger."""
    if message not in _warned:
        _warned.add(message)
        _logger.warning("warmwatch: %s", message)
