"""Whether what cannot be read in a record directory is a dead run's: asked when ``doctor`` asks."""

from __future__ import annotations

import fcntl
import os

from warmwatch import record
from warmwatch_monitor.sources.folder import Folder


def is_leftover(folder: str) -> bool:
    """Whether it is a record, of whatever release, that no process holds any more."""
    try:
        with Folder(folder) as opened:
            descriptor, _ = opened.open(record.SLOT)
            try:
                answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, record.LOCK_QUESTION)
                ours = os.pread(descriptor, len(record.MAGIC), 0) == record.MAGIC
                return ours and record.lock_holder(answer) is None
            finally:
                os.close(descriptor)
    except (OSError, record.RecordError):
        return False
