"""A line into the training's own terminal, and into the log of those who collect one.

Never into the middle of a progress bar: tqdm's bars are taken away for the line and drawn again,
and rich's live displays put what is written to ``sys.stderr`` above themselves.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

_logger = logging.getLogger("warmwatch")


def is_logged() -> bool:
    """Whether the user asked for our logger by name: gave it a level that lets us in."""
    return _logger.level != logging.NOTSET and _logger.isEnabledFor(logging.INFO)


def put(line: str, *, shown: bool) -> None:
    """Log ``line`` where that was asked for, and show it where that was.

    Raises:
        Exception: whatever the user's stream, log handler or progress bar raises.
    """
    try:
        if shown and sys.stderr is not None:
            _show(line)
    finally:  # one of them that refuses is no reason to leave out the other
        if is_logged():
            _logger.info(line)


def _show(line: str) -> None:
    text = f"warmwatch: {line}"
    bars = _bars()
    if bars is not None:
        bars.write(text, file=sys.stderr)
    else:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def _bars() -> Any:
    """tqdm's class where a bar of it is on the screen."""
    bars = getattr(sys.modules.get("tqdm.std"), "tqdm", None)
    return bars if getattr(bars, "_instances", None) else None
