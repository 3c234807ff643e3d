"""A process that marks steps by hand on command, and prints the length of the longest one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.records import environment

PROGRAM = """
import atexit, json, os, sys, time
atexit.register(print, "over", flush=True)
import warmwatch
warmwatch.attach(run="t")
warmwatch.step()
from warmwatch.lifecycle import api as _current
print(_current.attached.agent.record.writer.folder, flush=True)
for line in sys.stdin:
    count, longest = int(line), 0
    for number in range(count):
        begun = time.perf_counter_ns()
        warmwatch.step()
        if number % 10 == 0:
            warmwatch.attach(tokens_per_step=1 + number)  # rare: the compile block, the identity
        longest = max(longest, time.perf_counter_ns() - begun)
        time.sleep(.001)
    print(json.dumps(longest), flush=True)
"""

# Long timeouts, so that a slow disk does not change what the training does.
PATIENCE = """
from warmwatch.recorder import writer as _writer
_writer._TIMEOUT = _writer._OPEN_TIMEOUT = 600
"""
PATIENT = PROGRAM.replace("warmwatch.attach(run", f"{PATIENCE}warmwatch.attach(run", 1)


class Stepping:
    """The running process. ``steps``: marked so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.steps = process, 1
        self.folder = Path(self.line())

    def line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"it ended with {self.process.wait()}"
        return line.strip()

    def step(self, count: int = 300) -> int:
        """Have it mark ``count`` steps, 1 ms apart; returns the longest, in nanoseconds."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        self.steps += count
        return int(json.loads(self.line()))

    def leave(self) -> None:
        """Let the process exit."""
        assert self.process.stdin is not None
        self.process.stdin.close()


@contextmanager
def stepping(directory: Path, stderr: Path, program: str = PATIENT) -> Iterator[Stepping]:
    """Such a process, with its record in ``directory``."""
    with (
        stderr.open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment(WARMWATCH_DIR=str(directory)),
        ) as process,
    ):
        try:
            yield Stepping(process)
        finally:
            process.kill()
