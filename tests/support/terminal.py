"""Runs the command on a pseudo-terminal."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager

from support.records import environment

COMMAND = [sys.executable, "-m", "warmwatch_monitor"]


class Terminal:
    """A program on a pseudo-terminal, and what it has written so far."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process, self._master = process, master
        self.written = ""
        # incremental, because a read may end within a character
        self._decode = codecs.getincrementaldecoder("utf-8")().decode

    def read(self) -> None:
        """Wait for more output, and append it to ``written``."""
        self.written += self._decode(os.read(self._master, 65536))

    def read_until(self, words: str) -> None:
        while words not in self.written:
            self.read()

    def type(self, keys: str | bytes) -> None:
        os.write(self._master, keys.encode() if isinstance(keys, str) else keys)

    def read_to_end(self) -> int:
        try:
            while part := os.read(self._master, 65536):
                self.written += self._decode(part)
        except OSError:  # the other side has closed it
            pass
        return self.process.wait(60)


@contextmanager
def terminal(*words: str, size: tuple[int, int] = (80, 24), **variables: str) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    known = {"TERM": "xterm-256color", **variables}
    own_environment = environment(**known)
    if "COLUMNS" not in variables:
        own_environment.pop("COLUMNS", None)
    own = {"stdin": slave, "stdout": slave, "stderr": slave}
    with subprocess.Popen([*COMMAND, *words], env=own_environment, **own) as process:
        os.close(slave)
        try:
            yield Terminal(process, master)
        finally:
            process.kill()
            os.close(master)
