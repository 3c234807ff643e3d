"""For scripts of trainings: request a poll of the test's monitor, and wait for it.

``poller.py`` is that monitor. A training that is run by hand has none, and does not wait.
"""

from __future__ import annotations

import os

PIPES = "SCENARIO_PIPES"  # variable with the folder of the two pipes
REQUESTED, TAKEN = "poll-requested", "poll-taken"


def request_poll() -> None:
    """Return after a poll that began after this call."""
    folder = os.environ.get(PIPES)
    if not folder:
        return
    with open(f"{folder}/{REQUESTED}", "wb", buffering=0) as requested:  # noqa: PTH123 - no more imports here
        requested.write(b"\n")
    with open(f"{folder}/{TAKEN}", "rb", buffering=0) as taken:  # noqa: PTH123
        taken.read(1)
