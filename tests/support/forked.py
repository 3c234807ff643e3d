"""A process that a preloaded Python forked, with the interface of ``subprocess.Popen``."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self  # Python 3.11


class Forked:
    """A process that a preloaded Python forked, with the interface of ``subprocess.Popen``."""

    def __init__(self, reports: socket.socket, stdin: int, stdout: int, stderr: int | None) -> None:
        self._reports = reports.makefile("r")
        reports.close()
        self.stdin, self.stdout = os.fdopen(stdin, "w"), os.fdopen(stdout)
        self.stderr = None if stderr is None else os.fdopen(stderr)
        self.returncode: int | None = None
        self.pid = int(self._reports.readline())
        self._handle: int | None = None
        with suppress(ProcessLookupError):  # it has ended already
            self._handle = os.pidfd_open(self.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._reports], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its exit code; if a signal killed it, minus the signal's number."""
        if self.returncode is None:
            if timeout is not None and not select.select([self._reports], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("what was forked", timeout)
            self.returncode = os.waitstatus_to_exitcode(int(self._reports.readline()))
            self._reports.close()
            if self._handle is not None:
                os.close(self._handle)
        return self.returncode

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Close its input, wait for its end, and return the rest of its output and errors."""
        self.stdin.close()
        with ThreadPoolExecutor() as readers:
            rest = [
                readers.submit(stream.read) if stream is not None else None
                for stream in (self.stdout, self.stderr)
            ]
            self.wait(timeout)
            written, errors = ("" if one is None else one.result() for one in rest)
        return written, errors

    def send_signal(self, number: int) -> None:
        """Send a signal to this process, and never to a later one with the same pid."""
        if self.poll() is None and self._handle is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)
