"""A real shell on a terminal, in which the Tab key completes a command of Warmwatch."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

_PROMPT_SECONDS = 60.0
# shell -> how it starts without its user's files, and its line of docs/reference/commands.md
SHELLS = {
    "bash": (
        ["bash", "--norc", "--noprofile", "-i"],
        'eval "$(_WARMWATCH_COMPLETE=bash_source warmwatch)"',
    ),
    "zsh": (
        ["zsh", "-f", "-i"],
        'autoload -Uz compinit; compinit -u -D; eval "$(_WARMWATCH_COMPLETE=zsh_source warmwatch)"',
    ),
    "fish": (["fish", "--no-config", "-i"], "_WARMWATCH_COMPLETE=fish_source warmwatch | source"),
}
_HOME, _END, _TAB, _ENTER = "\x01", "\x05", "\t", "\r"


class Shell:
    """An interactive shell. It never runs what it completes: it prints the words of the line."""

    def __init__(self, terminal: int) -> None:
        self._terminal, self._count = terminal, 0

    def words(self, line: str) -> list[str]:
        """The words of ``line`` after the Tab key, as the shell would pass them to a command."""
        self._count += 1
        end = f"end {self._count} of line"
        # the shell reads the keys after Tab when it has completed
        show = f"{_HOME}printf '<%s>\\n' {_END}; echo end {self._count} of 'line'{_ENTER}"
        self._type(line + _TAB + show)
        return re.findall(r"<(?!%s>)([^<\r]*)>\r", self._read_until(f"{end}\r"))

    def start(self, setup: str) -> None:
        self._type(f"{setup}; echo it is 'ready'{_ENTER}")
        self._read_until("it is ready\r")

    def _type(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def _read_until(self, word: str) -> str:
        shown, deadline = "", time.monotonic() + _PROMPT_SECONDS
        while word not in shown:
            left = deadline - time.monotonic()
            assert select.select([self._terminal], [], [], max(left, 0))[0], shown
            shown += os.read(self._terminal, 65536).decode(errors="replace")
        return shown


@contextlib.contextmanager
def shell(name: str, folder: Path, environ: Mapping[str, str]) -> Iterator[Shell]:
    """The shell ``name`` in ``folder``, with completion for ``warmwatch`` of this checkout."""
    command, setup = SHELLS[name]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    variables = {**environ, "PATH": path, "TERM": "xterm", "PS1": "> ", "HOME": str(folder)}
    child, terminal = pty.fork()
    if not child:
        os.chdir(folder)
        os.execvpe(command[0], command, variables)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 400, 0, 0))
    started = Shell(terminal)
    try:
        started.start(setup)
        yield started
    finally:
        os.kill(child, signal.SIGKILL)
        os.close(terminal)
        os.waitpid(child, 0)
