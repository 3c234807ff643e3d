"""The lock on the slot as the kernel's words for ``fcntl``: the question, and its answer.

Only a write lock is life: the question conflicts with no shared lock, which any reader may take.
"""

from __future__ import annotations

import struct
from fcntl import F_RDLCK, F_UNLCK

_FLOCK = struct.Struct("hhqqi4x")  # struct flock on 64-bit Linux
LOCK_QUESTION = _FLOCK.pack(F_RDLCK, 0, 0, 0, 0)


def lock_holder(answer: bytes) -> int | None:
    """Who holds the lock, from what ``F_GETLK`` made of LOCK_QUESTION; ``None``: nobody.

    0 where the process is in another pid namespace, which this one does not see.
    """
    kind, _, _, _, pid = _FLOCK.unpack(answer)
    return None if kind == F_UNLCK else max(0, pid)
