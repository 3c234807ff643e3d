"""The sockets that the daemon listens on: TCP, and a UNIX socket for the users of this machine.

The UNIX socket's path is below a directory that only root or the user can write to, so no one else
can listen there first. The kernel reports the connecting user (``credentials.local_client``).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from warmwatch_monitor.errors import DaemonError
from warmwatch_monitor.settings import DEFAULT_ADDRESS, Address, Settings

_BACKLOG = 1024
_PROBE_SECONDS = 1.0
_LOCK_SECONDS = 2.0  # longer than a probe


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
            listener.listen(_BACKLOG)
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

    Only commands without an address use it. So without an explicit path only the daemon at the
    default address has one, where it can create one.

    Raises:
        DaemonError: the explicit path cannot be used; the message says what to do.
    """
    if not settings.socket_set and str(settings.address) != DEFAULT_ADDRESS:
        yield None
        return
    for path in map(Path, settings.sockets):
        try:
            listener = _listen_at(path)
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


def _listen_at(path: Path) -> socket.socket:
    """Raises OSError: the socket cannot be created, or another daemon listens there."""
    with contextlib.suppress(FileExistsError):
        path.parent.mkdir()
        _set_mode(path.parent, stat.S_IFDIR, 0o755)  # whatever the umask
    with _locked(path.parent):
        _remove_stale(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(path))
            _set_mode(path, stat.S_IFSOCK, 0o666)  # the guard decides who may read what
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
    return listener


def _set_mode(path: Path, kind: int, mode: int) -> None:
    """Set the mode of what this daemon has just made, and of nothing else.

    Another user may be able to put a link in its place. Raises OSError: it is not ours any more.
    """
    found = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        there = os.fstat(found)
        if stat.S_IFMT(there.st_mode) != kind or there.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "another user replaced it", str(path))
        os.chmod(f"/proc/self/fd/{found}", mode)  # noqa: PTH101 - ``fchmod`` refuses O_PATH
    finally:
        os.close(found)


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Daemons that start at the same moment must not remove each other's socket as a stale one.

    Any user may hold this lock, so a daemon waits for it for a limited time, then goes on. It goes
    on without it too where the directory cannot be read, or its filesystem has no locks.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, descriptor)
            until = time.monotonic() + _LOCK_SECONDS
            while not _is_locked(descriptor) and time.monotonic() < until:
                time.sleep(0.01)
        yield


def _is_locked(descriptor: int) -> bool:
    """Whether this daemon has the lock now. Raises OSError: there is none."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


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
