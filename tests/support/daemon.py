"""A real daemon on a free port."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from support.records import environment, wait_until


@contextmanager
def daemon_process(
    *arguments: str, before: Callable[[], None] | None = None, **variables: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """``warmwatch serve`` on a free port, and its URL; terminated at the end.

    ``before`` is called in its process before it is the daemon.
    """
    command = [sys.executable, "-m", "warmwatch_monitor", "serve", "--address", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**variables),
        preexec_fn=before,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"https?://[\d.:]+", line)
            assert found, f"the daemon said {line!r}"
            yield process, found.group()
        finally:
            process.terminate()


@contextmanager
def daemon(directory: Path, *arguments: str) -> Iterator[str]:
    """The URL of a daemon that watches ``directory`` and has read it."""
    with daemon_process("--dir", str(directory), "--interval", "0.05", *arguments) as (_, url):
        wait_until(lambda: _ready(url))
        yield url


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=60) as reply:
            return reply.status == 200
    except OSError:
        return False
