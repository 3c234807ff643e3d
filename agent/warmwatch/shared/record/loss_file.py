"""The file of losses that ``warmwatch modes`` lets a training write: format and parser.

One row for each backward pass: the number of its step, counted from 1, and its loss. The file has
its full size from the beginning. A row is complete when its step is not 0 and its loss is not the
not-a-number of ``UNUSED_ROW``, which no computation yields: a device may deliver the loss later.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping

SUFFIX = ".losses"
GUARDS = ".guards"  # file with the time of guard checks in a step
REQUEST = "measure-guards"  # exists when guard checks are to be measured
ROW = struct.Struct("<qd")
STEP = struct.Struct("<q")
UNUSED_ROW = struct.pack("<qQ", 0, 2**64 - 1)
MOST_ROWS = 1 << 16
SIZE = MOST_ROWS * ROW.size


def name_of(rank: int, pid: int) -> str:
    return f"{rank}-{pid}{SUFFIX}"


def rank_of(name: str) -> int | None:
    """The rank in the name of a file; ``None`` if it is another file's."""
    rank = name.partition("-")[0]
    return int(rank) if rank.isdecimal() and name.endswith(SUFFIX) else None


def rows_of(content: bytes) -> tuple[tuple[int, float], ...]:
    """Step and loss of each row, up to the first one that is not complete."""
    rows: list[tuple[int, float]] = []
    for at in range(0, len(content) - ROW.size + 1, ROW.size):
        step, loss = ROW.unpack_from(content, at)
        if not step or content[at + STEP.size : at + ROW.size] == UNUSED_ROW[STEP.size :]:
            break
        rows.append((step, loss))
    return tuple(rows)


def pack_guards(seconds: float, frames: Mapping[str, float]) -> str:
    """The content of a file of guard checks. ``frames``: of each, by PyTorch's number."""
    return json.dumps([seconds, frames])


def unpack_guards(content: str) -> tuple[float, dict[str, float]]:
    """Seconds of guard checks in a step, and those of each frame."""
    seconds, frames = json.loads(content)
    return seconds, frames
