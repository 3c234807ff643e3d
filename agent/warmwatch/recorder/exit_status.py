"""The exit status, written by the C library when the process has really exited.

No hook of Python's tells the status: ``sys.exit(3)`` has left no trace when ``atexit`` runs, and
after that there is no Python left to be called. So ``on_exit`` of glibc is given a C function,
``putw``, which writes the status (an ``int``) to a stream of ours: 4 bytes in the record's file
``exit``, or none where the process was killed or left by ``os._exit``. Nothing else in the process
changes. Where a C library has no ``on_exit`` (musl), the status is not known.

Invariants: a forked child inherits the handler, so the stream's descriptor leads nowhere there
before any of the child's own code runs, and after a detach likewise. The descriptor has a high
number, which the system gives to no other file after a program that closes all it has: only then
would the status end up in a stranger's file. It is looked at before it is changed for the same
reason. One stream serves the process for good, since a handler cannot be taken back.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from warmwatch._guard import pass_on
from warmwatch.process.descriptors import (
    File,
    file_of,
    high_copy,
    leads_to,
    overwrite_in_place,
)

_UNBUFFERED = 2  # _IONBF
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE
_ROOM = 64  # bytes; a promise and a status are 5

_descriptor = -1
_file: File | None = None  # device and inode that the descriptor leads to
_is_told = False  # whether the C library knows the stream


def arm(path: Path, mode: int) -> None:
    """Have the exit status written to ``path``, which is made here.

    Raises:
        OSError, AttributeError, ImportError: it cannot be known here.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    made = os.open(path, flags, mode)
    try:
        os.fchmod(made, mode)  # whatever the umask
        if _descriptor < 0:
            _register(made)
        else:
            _lead_to(made)
        _keep_room(made)
    finally:
        os.close(made)


def promise(byte: bytes) -> None:
    """Python ends now: what is left to come is the status. If it does not, the process was killed.

    ``byte`` says so in the file. Nothing is promised where the descriptor is gone.
    """
    if _is_told and _is_ours():
        try:
            os.write(_descriptor, byte)
        except OSError as error:
            pass_on(error)


def _keep_room(made: int) -> None:
    """Have a block for what is to come, as the slot has its own: the disk may be full by then.

    The file stays empty. A filesystem that has no such call says so, and is left at that. Btrfs
    writes to a new block each time, so the status needs a second one once the promise is on the
    disk. It has to be exempt from that while it is empty.
    """
    import ctypes

    overwrite_in_place(made)
    libc = ctypes.CDLL(None)
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
    libc.fallocate(made, _KEEP_SIZE, 0, _ROOM)


def disarm() -> None:
    """Have it written nowhere from now on: after a detach, and in a forked child."""
    if _descriptor < 0 or not _is_ours():
        return
    try:
        _lead_nowhere()
    except OSError as error:
        pass_on(error)
        _give_up()  # no descriptor is free, or ours is beyond what the process is now allowed


def _lead_nowhere() -> None:
    nowhere = _nowhere()
    try:
        _lead_to(nowhere)
    finally:
        os.close(nowhere)


def _nowhere() -> int:
    return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def _give_up() -> None:
    """Close the descriptor, and have its number lead nowhere, so that no other file gets it.

    Where that cannot be, the number is beyond what the process is allowed: no file gets it.
    """
    global _file
    os.close(_descriptor)
    with contextlib.suppress(OSError):
        nowhere = _nowhere()
        if nowhere == _descriptor:  # the one that was just freed, as none other was
            _file = file_of(os.fstat(nowhere))
        else:
            os.close(nowhere)


def _register(made: int) -> None:
    """Make the stream on a copy of descriptor ``made``, and name it to the C library.

    It is known here before it is there, so that a child which another thread forks lets go of it.
    """
    global _descriptor, _file, _is_told
    import ctypes  # here: PyTorch has it, a process that never attaches need not

    libc = ctypes.CDLL(None)  # its own functions: what is set on them nobody else sees
    on_exit, putw, fdopen, setvbuf = libc.on_exit, libc.putw, libc.fdopen, libc.setvbuf
    fdopen.restype, fdopen.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_char_p]
    setvbuf.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
    on_exit.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    copy = high_copy(made)
    stream = fdopen(copy, b"a")
    if not stream:
        os.close(copy)
        raise OSError("no stream for the exit status")
    setvbuf(stream, None, _UNBUFFERED, 0)
    _descriptor, _file = copy, file_of(os.fstat(copy))
    if on_exit(ctypes.cast(putw, ctypes.c_void_p), stream) != 0:
        _descriptor, _file = -1, None
        os.close(copy)
        raise OSError("no room for another exit handler")
    _is_told = True


def _lead_to(other: int) -> None:
    global _file
    if _is_ours():
        os.dup2(other, _descriptor, inheritable=False)
        _file = file_of(os.fstat(_descriptor))


def _is_ours() -> bool:
    """Whether the descriptor still leads where we led it: a program may close all it has."""
    return leads_to(_descriptor, _file)
