"""The stacks that an agent left in its record: read when somebody on this machine asks for them.

No poller reads them and nothing that answers over HTTP does. Hostile input like all of a record:
the file is its owner's, regular, no link, and bounded; a line that is none of ours is passed over.
"""

from __future__ import annotations

import contextlib
import os

from warmwatch.record import STACKS, RecordError
from warmwatch.record.stacks import STACKS_LIMIT, unpack_stacks
from warmwatch_monitor.model import Stacks
from warmwatch_monitor.sources.folder import Folder

_MOST = 64  # lines; an agent doubles its pauses, so a day is a dozen


def left_stacks(folder: str, since_ns: int) -> tuple[Stacks, ...]:
    """Those of the activity that began at ``since_ns``, oldest first.

    Raises:
        OSError: there are none. RecordError: they are not to be believed.
    """
    with Folder(folder) as opened:
        descriptor, status = opened.open(STACKS)
        try:
            if status.st_size > STACKS_LIMIT:
                raise RecordError(f"its {STACKS} is longer than an agent writes it")
            data = os.pread(descriptor, STACKS_LIMIT, 0)
        finally:
            os.close(descriptor)
    found = []
    for line in data.split(b"\n")[:_MOST]:
        with contextlib.suppress(RecordError):  # torn, or nobody's of ours
            found.append(unpack_stacks(line))
    return tuple(one for one in found if one.since_ns == since_ns)
