"""Calls with a timeout, for file systems that may never answer, and reads up to a size.

Nothing can interrupt a call into a file system that hangs (FUSE, NFS), not even Ctrl-C. So the
main thread of a command makes none on a path that a user names.

A file that is longer than a command reads was not made for it.
"""

from __future__ import annotations

import errno
import os
import stat
import threading

# ``signal`` makes enum members, of each signal at each call: 8 million instructions of `status`.
from _signal import (  # type: ignore[import-not-found]
    SIG_BLOCK,
    SIG_SETMASK,
    pthread_sigmask,
    valid_signals,
)
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DISK_SECONDS = 1.0

_last_calls: dict[str, threading.Thread] = {}  # by path


def within(seconds: float, call: Callable[[], T], default: T, *, path: str | None = None) -> T:
    """What ``call`` returns or raises; ``default`` if it takes longer than ``seconds``.

    ``path``: what ``call`` reads. While an earlier call on it hangs, ``default`` comes immediately.
    """
    if path is not None and hangs(path):
        return default
    returned: list[T] = []
    raised: list[Exception] = []

    def run() -> None:
        try:
            returned.append(call())
        except Exception as error:  # noqa: BLE001 - raised again, in the caller's thread
            raised.append(error)

    thread = threading.Thread(target=run, name="warmwatch-disk", daemon=True)
    # Signals are for the main thread: one that this thread took could stop `run` itself.
    before = pthread_sigmask(SIG_BLOCK, valid_signals())
    try:
        thread.start()
    finally:
        pthread_sigmask(SIG_SETMASK, before)
    if path is not None:
        _last_calls[path] = thread
    thread.join(seconds)
    if raised:
        raise raised[0]
    return returned[0] if returned else default


def hangs(path: str) -> bool:
    """Whether a call of :func:`within` on ``path`` has not returned yet."""
    thread = _last_calls.get(path)
    return thread is not None and thread.is_alive()


def read_text(path: str | os.PathLike[str], most: int, *, pipes: bool = False) -> str:
    """The text of a file of at most ``most`` bytes.

    ``pipes``: also wait for a pipe or a device, such as that of ``<(command)`` in a shell.

    Raises:
        OSError: it cannot be read; the message has the reason. UnicodeDecodeError: it is not UTF-8.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | (0 if pipes else os.O_NONBLOCK))
    try:
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(kind) or not (pipes or stat.S_ISREG(kind)):
            what = "a directory" if stat.S_ISDIR(kind) else "a special file"
            raise OSError(errno.EINVAL, f"it is {what}")
        content = bytearray()
        while len(content) <= most:
            part = os.read(descriptor, min(1 << 20, most + 1 - len(content)))
            if not part:
                return content.decode()
            content += part
    finally:
        os.close(descriptor)
    raise OSError(errno.EFBIG, f"it is larger than {_size(most)}")


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"
