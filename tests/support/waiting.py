"""A running ``warmwatch wait``.

Its timeouts are longer than any test takes, so that it behaves the same on a
slow machine.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from support.records import environment

_PATIENT = """
import sys
from warmwatch_monitor.client import answers, daemon
from warmwatch_monitor.commands import wait as waiter
daemon.ANSWER_SECONDS = daemon.CONNECT_SECONDS = 120.0
answers.HUNG_SECONDS = 120.0
waiter._ABSENCE_SECONDS = 86400.0
from warmwatch_monitor.__main__ import main
sys.argv[0] = "warmwatch"
main()
"""


class Waiting:
    """A ``warmwatch wait`` under way, read line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def line(self) -> str:
        """The next line of its progress."""
        assert self.process.stderr is not None
        return self.process.stderr.readline().rstrip("\n")

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=240)
        return self.process.returncode, out, err


@contextmanager
def waiting(*arguments: str) -> Iterator[Waiting]:
    with subprocess.Popen(
        [sys.executable, "-c", _PATIENT, "wait", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        # Ctrl-C is ignored by what a shell started in the background, and by all below it
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            yield Waiting(process)
        finally:
            process.kill()
