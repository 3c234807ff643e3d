"""The terminal's last line, in which ``run --watch`` has its answer."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios

import pytest

from warmwatch_monitor.commands.run import LastLine

SENTENCE = "gpt2: warm, but Dynamo captured nothing (3 graph breaks): this is eager speed; 36 ms"


def _read_until(terminal: int, words: str) -> str:
    """What was written there; a terminal hands it on in pieces."""
    written = b""
    while words.encode() not in written:
        written += os.read(terminal, 65536)
    return written.decode()


@pytest.mark.parametrize("columns", [20, 60])
def test_a_sentence_longer_than_the_terminal_remains_on_its_line(columns: int) -> None:
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
        line = LastLine(theirs)
        line.show("short")
        _read_until(ours, "short\x1b[0m\x1b8")
        line.show(SENTENCE)
        written = _read_until(ours, "\x1b8")
    finally:
        os.close(ours)
        os.close(theirs)
    assert "\n" not in written
    assert SENTENCE[: columns - 2] in written
    assert SENTENCE[:columns] not in written
