"""Real users: programs that run as another uid, and a record directory that all may enter."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.records import environment

ALICE, MALLORY, DAEMON = 10001, 10002, 10464

# load everything before the process becomes a user who may not read this folder
_BECOME = """
import fcntl, importlib, json, os, pkgutil, shutil, sys, time
import warmwatch, warmwatch_monitor
from pathlib import Path
from warmwatch.shared import record
for module in pkgutil.walk_packages(warmwatch.__path__, "warmwatch."):
    if module.name.startswith("warmwatch.frameworks"):
        continue  # what they import is not here
    if module.name not in ("warmwatch.auto", "warmwatch.__main__"):
        importlib.import_module(module.name)
from warmwatch_monitor.sources.records import followed_record  # loaded with the first record
from warmwatch_monitor.sources.records.source import RecordsSource
os.setgroups([]); os.setgid({uid}); os.setuid({uid})
"""
_LINES = """
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""
_TRAINING = "warmwatch.attach(run={run!r}); warmwatch.step()\n"
_TRAINING += "from warmwatch.lifecycle import api as _current\n"
_TRAINING += "print(_current.attached.agent.record.writer.folder, flush=True)\n"


class Process:
    """A Python process of a user that runs commands, one line at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def begin(self, line: str) -> None:
        """Have it do ``line``, without waiting for it."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def do(self, line: str) -> None:
        self.begin(line)
        assert self.line() == "done"


@contextmanager
def shared() -> Iterator[Path]:
    """A record directory of root's, open to all, in a folder that all may enter."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        made = Path(place, "warmwatch")
        made.mkdir()
        made.chmod(0o1777)
        yield made


@contextmanager
def someone(uid: int, program: str = "", **variables: str) -> Iterator[Process]:
    """A process of the user ``uid``, which runs ``program`` and then commands."""
    with subprocess.Popen(
        [sys.executable, "-c", _BECOME.format(uid=uid) + program + _LINES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(PYTHONPATH=os.pathsep.join(sys.path), **variables),
    ) as process:
        try:
            yield Process(process)
        finally:
            process.kill()


@contextmanager
def training(uid: int, directory: Path, run: str = "gpt2") -> Iterator[tuple[Process, Path]]:
    """A process of ``uid`` with the agent, and the folder of its record, which all may read."""
    public = {"WARMWATCH_DIR": str(directory), "WARMWATCH_READERS": "all"}
    with someone(uid, _TRAINING.format(run=run), **public) as process:
        yield process, Path(process.line())
