"""A daemon that a command starts for itself and ends with itself."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from warmwatch.shared.variables import PREFIX
from warmwatch_monitor.base.errors import DaemonError
from warmwatch_monitor.base.interpreter import python
from warmwatch_monitor.base.settings import Address

ANY_PORT = "127.0.0.1:0"
_LONGEST = 1000  # characters of what it printed
_SERVED = re.compile(r"(https?)://([^/\s]+):(\d+)/")


@contextlib.contextmanager
def started_daemon(
    environ: Mapping[str, str], address: str = ANY_PORT, *, awaits: str | None = None
) -> Iterator[Address]:
    """The address at which it serves. Raises DaemonError: it does not start.

    It has a session of its own: a Ctrl-C in the terminal ends the command first, which ends it.
    It also ends if this process dies without doing so.
    It writes no log: the file for its errors would grow for as long as it runs.
    ``awaits``: id of the launch whose first record it waits for.
    """
    command = [*python("warmwatch_monitor"), "serve", "--until-stdin-ends"]
    command += ["--address", address]
    command += [] if awaits is None else ["--awaits", awaits]
    with (
        tempfile.TemporaryFile("w+") as errors,  # a pipe without a reader would block it
        subprocess.Popen(
            command,
            env={**environ, f"{PREFIX}LOG_FORMAT": "off"},
            stdin=subprocess.PIPE,  # ends with this process, even by SIGKILL
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        ) as daemon,
    ):
        try:
            line = daemon.stdout.readline() if daemon.stdout else ""
            match = _SERVED.search(line)
            if match is None:
                daemon.wait()
                errors.seek(0)
                why = errors.read(_LONGEST).strip().removeprefix("warmwatch: ")
                raise DaemonError(f"the daemon did not start: {why or 'run `warmwatch doctor`'}")
            scheme, host, port = match.groups()
            yield Address(host=host.strip("[]"), port=int(port), tls=scheme == "https")
        finally:
            daemon.terminate()


def ends_with_a_command(address: Address) -> bool:
    """Whether a command started the daemon at this address, and will end it."""
    own = {b"--awaits", str(address).encode()}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            if own <= set(path.read_bytes().split(b"\0")):
                return True
    return False
