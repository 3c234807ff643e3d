"""The sockets that the daemon listens on: TCP, and a UNIX socket for the users of this machine.

The UNIX socket's path is below a directory that only root or the user can write to, so no one else
can listen there first.

The service manager gets reports by sd_notify(3), over the socket that systemd names: READY after
the first read of the records, STATUS with the sentence, and WATCHDOG=1 while Snapshots are
published: systemd restarts a daemon whose publisher hangs, or that was stopped. Without the
variable NOTIFY_SOCKET nothing is sent. Nothing here delays the publisher.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from warmwatch_monitor.base.errors import DaemonError
from warmwatch_monitor.base.settings import DEFAULT_ADDRESS, Address, Settings
from warmwatch_monitor.model.snapshot import Snapshot
from warmwatch_monitor.status.words.sentence import summary

BACKLOG = 1024
_PROBE_SECONDS = 1.0


def listen(address: Address) -> socket.socket:
    """A listening socket.

    Raises:
        DaemonError: the address cannot be used; the message says what to do.
    """
    try:
        family, kind, protocol, _, where = resolved(address)
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(where)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        in_use = "stop what listens there or " if error.errno == errno.EADDRINUSE else ""
        raise DaemonError(
            f"cannot listen on {address}: {(error.strerror or str(error)).lower()}; {in_use}"
            "choose another with --address HOST:PORT (port 0: any free one)"
        ) from None
    return listener


def resolved(address: Address) -> tuple[Any, ...]:
    """The result of :func:`socket.getaddrinfo` for it; raises OSError."""
    return socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]


@contextlib.contextmanager
def local_listener(settings: Settings) -> Iterator[socket.socket | None]:
    """A listening UNIX socket, which is removed at the end; ``None`` if there is to be none.

    If a token is required, only root and the daemon's user may connect; they need no token there.

    Only commands without an address use it. So without an explicit path only the daemon at the
    default address has one, where it can create one.

    Raises:
        DaemonError: the explicit path cannot be used; the message says what to do.
    """
    if not settings.socket_set and str(settings.address) != DEFAULT_ADDRESS:
        yield None
        return
    mode = 0o666 if settings.access.token_file is None else 0o600
    for path in map(Path, settings.sockets):
        try:
            listener = _listen_at(path, mode)
        except OSError as error:
            if settings.socket_set:
                raise DaemonError(
                    f"cannot listen on {path}: {(error.strerror or str(error)).lower()}; set "
                    "WARMWATCH_SOCKET to another path, or to off"
                ) from None
            continue
        made = path.lstat().st_ino
        try:
            with listener:
                yield listener
        finally:
            with contextlib.suppress(OSError):
                if path.lstat().st_ino == made:
                    path.unlink()
        return
    yield None


def _listen_at(path: Path, mode: int) -> socket.socket:
    """Raises OSError: the socket cannot be created, or another daemon listens there."""
    with contextlib.suppress(FileExistsError), _umask(0o022):
        path.parent.mkdir()
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _umask(0o777 & ~mode):  # so it never has another mode
            listener.bind(str(path))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


@contextlib.contextmanager
def _umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def _remove_stale(path: Path) -> None:
    """Remove the socket of a daemon that was killed. Raises OSError: a daemon listens there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(str(path))
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            if path.is_socket():
                path.unlink()
            return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


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
