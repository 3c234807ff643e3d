"""The file ``workers`` of a record: what the workers of its DataLoaders compile."""

from __future__ import annotations

import fcntl
import os

from warmwatch.shared import record
from warmwatch.shared.record import RecordError, workers_file
from warmwatch_monitor.model import WorkerCompilations
from warmwatch_monitor.sources.records.folder import Folder


def compiling_workers(folder: Folder) -> WorkerCompilations | None:
    """What they compile; ``None`` if none has compiled, or the file cannot be read.

    The activity of a worker that was killed in it counts no longer: its entry is not held.
    """
    try:
        descriptor, _ = folder.open(record.WORKERS)
    except (OSError, RecordError):
        return None
    try:
        entries = workers_file.unpack(
            os.pread(descriptor, workers_file.MOST * workers_file.SIZE, 0)
        )
        used = [(at, entry) for at, entry in enumerate(entries) if entry.processes]
        if not used:
            return None
        active = [entry for at, entry in used if entry.since_ns and _is_held(descriptor, at)]
        latest = max(
            (entry for _, entry in used), key=lambda item: max(item.since_ns, item.last_end_ns)
        )
        return WorkerCompilations(
            since_ns=tuple(sorted(entry.since_ns for entry in active)),
            processes=sum(entry.processes for _, entry in used),
            at_once=len(used),
            compile_ns=sum(entry.compile_ns for _, entry in used),
            name=latest.name or None,
        )
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _is_held(descriptor: int, index: int) -> bool:
    answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, workers_file.lock_question(index))
    return workers_file.is_held(answer)
