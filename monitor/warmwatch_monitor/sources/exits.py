"""The exit code that a process left in its record, read once the process is gone."""

from __future__ import annotations

import os

from warmwatch import record
from warmwatch.record import RecordError
from warmwatch_monitor.sources.folder import Folder

_MOST = 64  # one status is 4 bytes; a longer file is nobody's of ours


def left_exit_code(folder: Folder) -> int | None:
    """0 to 255; ``None`` where the file is not there, empty, or no file of ours."""
    try:
        descriptor, status = folder.open(record.EXIT)
    except (OSError, RecordError):
        return None
    try:
        if status.st_size > _MOST:
            return None
        return record.exit_code(os.pread(descriptor, _MOST, 0))
    except OSError:
        return None
    finally:
        os.close(descriptor)
