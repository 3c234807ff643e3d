"""How a record shows that its process lives or has ended: the slot's lock, the file ``exit``. Pure.

The process holds the lock while it lives. ``exit`` holds the exit status, which the C library
writes last.
"""

from __future__ import annotations

import struct
from fcntl import F_RDLCK, F_UNLCK

from warmwatch.shared.record.facts import CompileCounts
from warmwatch.shared.values import ENDS

_FLOCK = struct.Struct("hhqqi4x")  # struct flock on 64-bit Linux
LOCK_QUESTION = _FLOCK.pack(F_RDLCK, 0, 0, 0, 0)


def lock_holder(answer: bytes) -> int | None:
    """The pid that holds the lock, from the reply of ``F_GETLK`` to LOCK_QUESTION; ``None``: none.

    0 if the process is in another pid namespace, which is not visible here.
    """
    kind, _, _, _, pid = _FLOCK.unpack(answer)
    return None if kind == F_UNLCK else max(0, pid)


_STATUS_BYTES = 4
EXIT_PROMISED = b"?"


def exit_code(data: bytes) -> int | None:
    """The exit code, 0 to 255, from the bytes of ``exit``; ``None`` if they contain none."""
    if len(data) < _STATUS_BYTES:
        return None
    return int.from_bytes(data[-_STATUS_BYTES:], "little") & 0xFF


def broken_promise(data: bytes) -> bool:
    """Whether ``exit`` announces a status that it does not contain."""
    return data == EXIT_PROMISED


def without_end(counts: CompileCounts) -> CompileCounts:
    """The facts without an end: the process reported "finished", but died before it had.

    ``ended_ns`` stays: the time of that report. An end with an exit code, or of another kind,
    stays.
    """
    if ENDS[counts.end_code] != "finished" or counts.exit_code:
        return counts
    return counts._replace(end_code=0)


def with_exit_code(counts: CompileCounts, code: int | None) -> CompileCounts:
    """The facts of a process that is gone, with its exit code, which decides.

    At exit the agent does not know the code yet: it reports "finished" for ``sys.exit(1)``. What a
    process does after a detach is none of the record's.
    """
    if code is None or ENDS[counts.end_code] == "detached":
        return counts
    if ENDS[counts.end_code] == "interrupted":  # whatever exit code a child's launcher makes of it
        return counts._replace(exit_code=1 + code)
    return counts._replace(
        end_code=ENDS.index("failed" if code else "finished"), exit_code=1 + code
    )
