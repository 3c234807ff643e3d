"""The exit status, written by the C library when the process exits.

No hook of Python reports the status: ``sys.exit(3)`` has left no trace when ``atexit`` runs, and
no Python code runs after that. So the agent registers a C function with glibc's ``on_exit``:
``putw``, which writes the status (an ``int``) to a stream. The record's file ``exit`` then has 4
bytes, or none if the process was killed or called ``os._exit``. Nothing else in the process
changes. Without ``on_exit`` (musl), the status is unknown.

Invariants: a forked child inherits the handler, so its descriptor is redirected to ``/dev/null``
before any of the child's code runs; a detach does the same. The descriptor has a high number: if
the program closes all descriptors, the system assigns that number to no other file. So the status
cannot end up in a file of the program. For the same reason the descriptor is checked before it is
changed. A handler cannot be removed, so one stream serves the process for its lifetime.
"""

from __future__ import annotations

import contextlib
import ctypes
import os

from warmwatch._guard import pass_on
from warmwatch.recorder.descriptors import (
    File,
    file_of,
    high_copy,
    leads_to,
    overwrite_in_place,
)

_UNBUFFERED = 2  # _IONBF
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE
_RESERVED = 64  # bytes; a promise and a status are 5

_descriptor = -1
_file: File | None = None  # device and inode of the descriptor's file
_is_registered = False  # with the C library


FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND


def arm(made: int) -> None:
    """Have the exit status written to the file ``made``, and close this descriptor.

    Raises:
        OSError, AttributeError, ImportError: the status cannot be determined on this system.
    """
    try:
        if _descriptor < 0:
            _register(made)
        else:
            _redirect(made)
        _reserve(made)
    finally:
        os.close(made)


def promise(byte: bytes) -> None:
    """Write ``byte`` as Python exits: a status follows, unless the process is killed before.

    Does nothing if the descriptor is gone.
    """
    if _is_registered and _is_ours():
        try:
            os.write(_descriptor, byte)
        except OSError as error:
            pass_on(error)


def _reserve(made: int) -> None:
    """Allocate a block for the status, since the disk may be full at exit. The file stays empty.

    A filesystem without ``fallocate`` returns an error, which is ignored. Btrfs writes each store
    to a new block, so after the promise the status would need a second one. The file must be
    exempt from copy-on-write, which btrfs allows only while it is empty.
    """
    overwrite_in_place(made)
    libc = ctypes.CDLL(None)
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
    libc.fallocate(made, _KEEP_SIZE, 0, _RESERVED)


def disarm() -> None:
    """Discard the status from now on: after a detach, and in a forked child."""
    if _descriptor < 0 or not _is_ours():
        return
    try:
        null = _open_null()
        try:
            _redirect(null)
        finally:
            os.close(null)
    except OSError as error:
        pass_on(error)
        _replace()  # no descriptor is free, or ours is above the process's new limit


def _open_null() -> int:
    return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def _replace() -> None:
    """Close the descriptor and occupy its number with ``/dev/null``, so that no other file gets it.

    If that fails, the number is above the process's limit: no file gets it.
    """
    global _file
    os.close(_descriptor)
    with contextlib.suppress(OSError):
        null = _open_null()
        if null == _descriptor:  # just freed, and no lower number is free
            _file = file_of(os.fstat(null))
        else:
            os.close(null)


def _register(made: int) -> None:
    """Create the stream on a copy of descriptor ``made``, and register it with ``on_exit``.

    The globals are assigned before the registration, so that a child which another thread forks
    meanwhile redirects the descriptor.
    """
    global _descriptor, _file, _is_registered
    libc = ctypes.CDLL(None)  # an object of its own: the argtypes set below affect no other user
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
    _is_registered = True


def _redirect(other: int) -> None:
    global _file
    if _is_ours():
        os.dup2(other, _descriptor, inheritable=False)
        _file = file_of(os.fstat(_descriptor))


def _is_ours() -> bool:
    """Whether the descriptor is still ours: a program may close all descriptors."""
    return leads_to(_descriptor, _file)
