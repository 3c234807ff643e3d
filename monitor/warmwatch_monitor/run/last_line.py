"""A status line in the last line of the terminal, below the scrolling output of a command.

It uses the terminal's scroll region (all lines but the last), as apt does for its progress. The
command writes to the terminal directly and is not affected.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

_SAVE, _RESTORE, _UP = "\x1b7", "\x1b8", "\x1b[1A"
_WHOLE, _CLEAR = "\x1b[r", "\x1b[2K"
_LEAST_ROWS = 5


def terminal(descriptors: Sequence[int]) -> int | None:
    """The first that is a terminal."""
    return next((one for one in descriptors if os.isatty(one)), None)


class LastLine:
    """The last line of the terminal at ``descriptor``. Does nothing if it has few lines."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rows = 0  # height of the terminal when the line was reserved; 0: not reserved

    def show(self, text: str) -> None:
        """Show ``text``, cut to one line, unless this process is in the background."""
        if not self._in_foreground():
            return
        try:
            size = os.get_terminal_size(self._descriptor)
        except OSError:  # the terminal is gone; the command may continue
            self._rows = 0
            return
        if size.lines != self._rows:
            self._reserve(size.lines)
        if self._rows:
            line = styled(text, size.columns - 1)
            self._write(f"{_SAVE}\x1b[{self._rows};1H{_CLEAR}{line}{_RESTORE}")

    def leave(self) -> None:
        """Clear and release the line."""
        if self._rows:
            self._write(f"{_SAVE}{_WHOLE}\x1b[{self._rows};1H{_CLEAR}{_RESTORE}")
            self._rows = 0

    def _reserve(self, rows: int) -> None:
        """Exclude the last line from scrolling; the cursor stays above it."""
        self.leave()
        if rows >= _LEAST_ROWS:
            self._rows = rows
            self._write(f"\n{_SAVE}\x1b[1;{rows - 1}r{_RESTORE}{_UP}")

    def _in_foreground(self) -> bool:
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:  # not the controlling terminal
            return True

    def _write(self, text: str) -> None:
        try:
            os.write(self._descriptor, text.encode())  # one write: the command writes there too
        except OSError:
            self._rows = 0  # it was closed


def styled(text: str, width: int) -> str:
    """``text`` on one line of ``width`` columns, with the terminal's escape codes."""
    buffer = io.StringIO()
    console = Console(file=buffer, force_terminal=True, width=max(1, width), highlight=False)
    # pass no_wrap to print(), which ignores that of the Text
    console.print(Text(text, style="reverse"), end="", no_wrap=True, overflow="ellipsis")
    return buffer.getvalue()
