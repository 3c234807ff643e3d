"""What a process left in its record's file ``exit``, read once the process is gone."""

from __future__ import annotations

import os
import stat

from warmwatch import record
from warmwatch.record import CompileCounts

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a fifo must not hang us
_MOST = 64  # one status is 4 bytes; a longer file is nobody's of ours


def at_the_end(counts: CompileCounts, folder: str) -> CompileCounts:
    """The facts of a process that is gone: the exit code that it left decides.

    One that had come to its end and promised its exit status, and left none, was killed there.
    """
    left = _left(folder)
    if record.broken_promise(left):
        return record.without_end(counts)
    return record.with_exit_code(counts, record.exit_code(left))


def _left(folder: str) -> bytes:
    """The file's bytes; none where it is not there, or no file of ours."""
    try:
        descriptor = os.open(f"{folder}/{record.EXIT}", _FLAGS)
    except OSError:
        return b""
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST:
            return b""
        return os.pread(descriptor, _MOST, 0)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
