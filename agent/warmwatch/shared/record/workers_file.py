"""The file ``workers``: what the DataLoader's workers of a training compile. Pure.

Workers have no record of their own, and never write to the training's slot. This file is beside it,
and has one entry for each worker that compiles at one time. A worker takes the first free entry and
holds a POSIX lock on its bytes, which the kernel frees when it dies. A later worker takes the entry
over and adds to its sums, so the file does not grow with the number of epochs.
"""

from __future__ import annotations

import struct
from fcntl import F_RDLCK, F_UNLCK
from typing import NamedTuple

from warmwatch.shared.values import LARGEST

MOST = 64
_ENTRY = struct.Struct("<8sQQQQQ80s")  # magic, processes, begun, since, last end, sum, name
SIZE = _ENTRY.size
_MAGIC = b"WARMWRK1"
_FLOCK = struct.Struct("hhqqi4x")  # struct flock on 64-bit Linux
_LONGEST_NAME = 80


class Entry(NamedTuple):
    """One entry. Times are monotonic nanoseconds, 0 meaning "not yet".

    Attributes:
        processes: workers that have had this entry. begun: their activities.
        since_ns: begin of the activity in progress; 0 if there is none.
        last_end_ns: end of the last one. compile_ns: time of those that have ended.
        name: of the function that compiles, or compiled last.
    """

    processes: int = 0
    begun: int = 0
    since_ns: int = 0
    last_end_ns: int = 0
    compile_ns: int = 0
    name: str = ""


def pack(entry: Entry) -> bytes:
    name = entry.name.encode()[:_LONGEST_NAME]
    return _ENTRY.pack(_MAGIC, *entry[:-1], name)


def unpack(data: bytes) -> tuple[Entry, ...]:
    """The entries of the file; one that is damaged, or has numbers that no training reaches, is
    empty."""
    result = []
    for at in range(0, min(len(data), MOST * SIZE) - SIZE + 1, SIZE):
        magic, *numbers, name = _ENTRY.unpack_from(data, at)
        shown = name.rstrip(b"\0").decode(errors="ignore")
        shown = "".join(value for value in shown if value.isprintable())
        valid = magic == _MAGIC and max(numbers) <= LARGEST
        result.append(Entry._make((*numbers, shown)) if valid else Entry())
    return tuple(result)


def lock_question(index: int) -> bytes:
    """The argument of ``F_GETLK`` for the lock of an entry."""
    return _FLOCK.pack(F_RDLCK, 0, index * SIZE, SIZE, 0)


def is_held(answer: bytes) -> bool:
    """Whether a worker that lives holds the entry, by the reply to :func:`lock_question`."""
    return bool(_FLOCK.unpack(answer)[0] != F_UNLCK)
