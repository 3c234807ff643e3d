"""Calls with a timeout, for file systems that may never answer.

A call into a file system that hangs (FUSE, NFS) cannot be interrupted, not by Ctrl-C either, so the
main thread of a command makes none on what a user names.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DISK_SECONDS = 1.0


def within(seconds: float, ask: Callable[[], T], otherwise: T) -> T:
    """What ``ask`` returns or raises; ``otherwise`` where it takes longer than ``seconds``."""
    returned: list[T] = []
    raised: list[Exception] = []

    def call() -> None:
        try:
            returned.append(ask())
        except Exception as error:  # noqa: BLE001 - raised again, in the caller's thread
            raised.append(error)

    thread = threading.Thread(target=call, name="warmwatch-disk", daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    return returned[0] if returned else otherwise
