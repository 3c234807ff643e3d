"""What a process left in its record's file ``exit``, read once the process is gone."""

from __future__ import annotations

import os

from warmwatch import record
from warmwatch.record import CompileCounts, RecordError
from warmwatch_monitor.sources.folder import Folder

_MOST = 64  # one status is 4 bytes; a longer file is nobody's of ours


def at_the_end(counts: CompileCounts, left: bytes) -> CompileCounts:
    """The facts of a process that is gone: the exit code that it left decides.

    One that had come to its end and promised its exit status, and left none, was killed there.
    """
    if record.broken_promise(left):
        return record.without_end(counts)
    return record.with_exit_code(counts, record.exit_code(left))


def left_by(folder: Folder) -> bytes:
    """The file's bytes; none where it is not there, or no file of ours."""
    try:
        descriptor, status = folder.open(record.EXIT)
    except (OSError, RecordError):
        return b""
    try:
        return os.pread(descriptor, _MOST, 0) if status.st_size <= _MOST else b""
    except OSError:
        return b""
    finally:
        os.close(descriptor)
