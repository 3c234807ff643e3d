"""Inside a training: request a poll of the test's monitor, and wait for it.

See :mod:`support.poller`. A training that is run by hand has no monitor, and waits for nothing.
"""

from __future__ import annotations

import os

MEETING = "SCENARIO_LOOKS"
REQUESTED, TAKEN = "look-requested", "look-taken"


def look() -> None:
    """Return after a poll that began after this call."""
    folder = os.environ.get(MEETING)
    if not folder:
        return
    with open(f"{folder}/{REQUESTED}", "wb", buffering=0) as requested:  # noqa: PTH123 - no more imports here
        requested.write(b"\n")
    with open(f"{folder}/{TAKEN}", "rb", buffering=0) as taken:  # noqa: PTH123
        taken.read(1)
