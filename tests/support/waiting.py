"""The command ``warmwatch wait`` under way."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from support.records import environment


class Waiting:
    """A ``warmwatch wait`` under way, read line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def told(self) -> str:
        """The next line of its progress."""
        assert self.process.stderr is not None
        return self.process.stderr.readline().rstrip("\n")

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=240)
        return self.process.returncode, out, err


@contextmanager
def waiting(*arguments: str) -> Iterator[Waiting]:
    with subprocess.Popen(
        [sys.executable, "-m", "warmwatch_monitor", "wait", *arguments],
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
