"""Inside a training: ask the monitor beside it for a look, and wait until it was taken.

See :mod:`support.poller`. A training that is run by hand has no monitor, and waits for nothing.
"""

from __future__ import annotations

import os

MEETING = "SCENARIO_LOOKS"
ASKED, TAKEN = "look-asked", "look-taken"


def look() -> None:
    """Return when a look has been taken that began after this call."""
    folder = os.environ.get(MEETING)
    if not folder:
        return
    with open(f"{folder}/{ASKED}", "wb", buffering=0) as asked:  # noqa: PTH123 - no more imports here
        asked.write(b"\n")
    with open(f"{folder}/{TAKEN}", "rb", buffering=0) as taken:  # noqa: PTH123
        taken.read(1)
