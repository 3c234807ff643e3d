"""The terminal's last line, kept free of scrolling output.

The terminal itself does that: a scroll region of all lines but the last, as apt has it for its
progress. So a command writes to the terminal as ever, at its own pace, and sees a terminal.
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
    """The last line of the terminal at ``descriptor``. Of one with few lines nothing is taken."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rows = 0  # of the terminal whose last line is ours; 0: none is

    def show(self, text: str) -> None:
        """Have ``text`` there, cut to one line; not while others have the foreground."""
        if not self._in_foreground():
            return
        try:
            size = os.get_terminal_size(self._descriptor)
        except OSError:  # it is gone, and the command may go on
            self._rows = 0
            return
        if size.lines != self._rows:
            self._take(size.lines)
        if self._rows:
            said = styled(text, size.columns - 1)
            self._write(f"{_SAVE}\x1b[{self._rows};1H{_CLEAR}{said}{_RESTORE}")

    def leave(self) -> None:
        """Give the line back, empty."""
        if self._rows:
            self._write(f"{_SAVE}{_WHOLE}\x1b[{self._rows};1H{_CLEAR}{_RESTORE}")
            self._rows = 0

    def _take(self, rows: int) -> None:
        """As many lines scroll as are there but one; the cursor stays among them."""
        self.leave()
        if rows >= _LEAST_ROWS:
            self._rows = rows
            self._write(f"\n{_SAVE}\x1b[1;{rows - 1}r{_RESTORE}{_UP}")

    def _in_foreground(self) -> bool:
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:  # not our terminal to be in the background of
            return True

    def _write(self, text: str) -> None:
        try:
            os.write(self._descriptor, text.encode())  # in one piece: others write there too
        except OSError:
            self._rows = 0  # it was closed


def styled(text: str, width: int) -> str:
    """``text`` on one line of ``width`` columns, as this terminal takes it."""
    room = io.StringIO()
    console = Console(file=room, force_terminal=True, width=max(1, width), highlight=False)
    # said to print: it joins what it is given into a text of its own, which would be wrapped
    console.print(Text(text, style="reverse"), end="", no_wrap=True, overflow="ellipsis")
    return room.getvalue()
