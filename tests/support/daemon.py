"""Runs ``warmwatch`` in a separate process: a daemon on a free port, or a command to its end."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from support.forked import Forked
from support.preloaded import DAEMON, OWN_OF_DAEMON, Preloaded
from support.records import environment, wait_until
from warmwatch_monitor import __main__ as program

Process = subprocess.Popen[str] | Forked


@contextmanager
def daemon_process(
    *arguments: str, before: Callable[[], None] | None = None, **variables: str
) -> Iterator[tuple[Process, str]]:
    """Run ``warmwatch serve`` on a free port; yields its process and its URL.

    ``before`` is called in the new process, before the daemon starts.
    """
    words = ("serve", "--address", "127.0.0.1:0", *arguments)
    quiet = {"WARMWATCH_LOG_FORMAT": "off", **variables}  # its pipe is not read
    with _started(words, environment(**quiet), before=before) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"https?://[\d.:]+", line)
            if not found:
                process.terminate()
                errors = process.communicate(timeout=240)[1]
                raise AssertionError(f"the daemon printed {line!r}, and its errors:\n{errors}")
            yield process, found.group()
        finally:
            process.terminate()


def completed(
    *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``warmwatch`` with these arguments and empty standard input, to its end."""
    with _started(words, env or environment(), cwd=cwd) as process:
        output, errors = process.communicate(timeout=600)
    return subprocess.CompletedProcess(words, process.wait(), output, errors)


def _started(
    words: Sequence[str],
    env: Mapping[str, str],
    *,
    cwd: Path | None = None,
    before: Callable[[], None] | None = None,
) -> Process:
    """Start ``warmwatch``: as a fork of a preloaded Python if that fits, else in a new Python."""
    if before is None and "FRESH_PYTHONS" not in os.environ and _preloaded().fits(env):
        return _preloaded().start(Path(program.__file__), cwd or Path.cwd(), env, arguments=words)
    return subprocess.Popen(
        [sys.executable, "-m", "warmwatch_monitor", *words],
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        preexec_fn=before,
    )


@cache
def _preloaded() -> Preloaded:
    """The connection of this process to the preloaded Python."""
    return Preloaded(environment(), DAEMON, OWN_OF_DAEMON)


@contextmanager
def daemon(directory: Path, *arguments: str, **variables: str) -> Iterator[str]:
    """The URL of a daemon that watches ``directory`` and has read it."""
    words = ("--dir", str(directory), "--interval", "0.05", *arguments)
    with daemon_process(*words, **variables) as (_, url):
        wait_until(lambda: _ready(url))
        yield url


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=60) as reply:
            return reply.status == 200
    except OSError:
        return False


def status_of(url: str) -> dict[str, Any]:
    """The answer of the daemon at ``url``."""
    with urllib.request.urlopen(f"{url}/status", timeout=60) as reply:
        answer: dict[str, Any] = json.load(reply)
    return answer


def free_address() -> str:
    """An address at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"
