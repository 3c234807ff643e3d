"""Reports to the service manager: sd_notify(3), over the socket that systemd names.

It sends READY after the first read of the records, STATUS with the sentence, and WATCHDOG=1 while
Snapshots are published: systemd restarts a daemon whose publisher hangs, or that was stopped.
Without the variable NOTIFY_SOCKET nothing is sent. Nothing here delays the publisher.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping

from warmwatch_monitor.model import Snapshot
from warmwatch_monitor.status.words.sentence import summary

_STATUS_SECONDS = 1.0  # between two sentences, at least
_LONGEST = 300  # characters of a sentence


class ServiceManager:
    """Reports to the service manager that started this process, if it requests reports."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        path = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + path[1:] if path.startswith("@") else path
        self._ready, self._status = False, ""
        self._status_at = self._watchdog_at = float("-inf")
        self._watchdog = _watchdog_seconds(environ, os.getpid())

    def take(self, snapshot: Snapshot) -> None:
        """A follower of the publisher."""
        if not self._address:
            return
        now, parts = time.monotonic(), []
        read = any(
            source.source == "records" and source.last_success for source in snapshot.sources
        )
        if read and not self._ready:
            self._ready = True
            parts.append("READY=1")
        if self._watchdog is not None and now - self._watchdog_at >= self._watchdog / 4:
            self._watchdog_at = now
            parts.append("WATCHDOG=1")
        if read and now - self._status_at >= _STATUS_SECONDS:
            self._status_at = now
            if (text := summary(snapshot).replace("\n", " ")[:_LONGEST]) != self._status:
                self._status = text
                parts.append(f"STATUS={text}")
        if parts:
            self._send("\n".join(parts))

    def reloading(self) -> None:
        """A reload has begun (for ``Type=notify-reload`` and ``Type=notify``)."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def reloaded(self) -> None:
        self._send("READY=1")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as manager:
            manager.sendto(text.encode(), self._address)


def _watchdog_seconds(environ: Mapping[str, str], pid: int) -> float | None:
    """Seconds within which systemd expects a watchdog message; ``None`` if it expects none."""
    text, whose = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", str(pid))
    if not text.isdecimal() or whose != str(pid) or not int(text):
        return None
    return int(text) / 1e6
