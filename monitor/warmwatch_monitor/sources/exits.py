"""The exit code that a process left in its record, read once the process is gone."""

from __future__ import annotations

import os
import stat

from warmwatch import record

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a fifo must not hang us
_MOST = 64  # one status is 4 bytes; a longer file is nobody's of ours


def left_exit_code(folder: str) -> int | None:
    """0 to 255; ``None`` where the file is not there, empty, or no file of ours."""
    try:
        descriptor = os.open(f"{folder}/{record.EXIT}", _FLAGS)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST:
            return None
        return record.exit_code(os.pread(descriptor, _MOST, 0))
    except OSError:
        return None
    finally:
        os.close(descriptor)
