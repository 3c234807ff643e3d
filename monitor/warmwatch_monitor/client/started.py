"""A daemon that a command starts for itself and ends with itself."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping

from warmwatch_monitor.errors import DaemonError
from warmwatch_monitor.settings import Address

ANY_PORT = "127.0.0.1:0"
_SERVED = re.compile(r"(https?)://([^/\s]+):(\d+)/")


@contextlib.contextmanager
def started_daemon(environ: Mapping[str, str], address: str = ANY_PORT) -> Iterator[Address]:
    """The address at which it serves. Raises DaemonError: it does not start.

    It has a session of its own: a Ctrl-C in the terminal ends the command first, which ends it.
    """
    command = [sys.executable, "-m", "warmwatch_monitor", "serve", "--address", address]
    with subprocess.Popen(
        command,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as daemon:
        try:
            line = daemon.stdout.readline() if daemon.stdout else ""
            found = _SERVED.search(line)
            if found is None:
                raise DaemonError("the daemon did not start; run `warmwatch doctor`")
            scheme, host, port = found.groups()
            yield Address(host=host.strip("[]"), port=int(port), tls=scheme == "https")
        finally:
            daemon.terminate()
