"""The monitor's two clocks, injected so that tests can set them."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct


class Clock(Struct, frozen=True, kw_only=True):
    """``monotonic_ns``: the clock of the records, per machine. ``epoch``: wall clock in seconds."""

    monotonic_ns: Callable[[], int] = time.monotonic_ns
    epoch: Callable[[], float] = time.time
