"""Full garbage collections, from ``gc.callbacks``: a list that Python calls at each one's ends.

Only those of the oldest generation are timed; at the others, which are often, the callback looks at
one number and goes. It may be called in the middle of any code, on any thread, in a compiled
function too: so its frame is hidden from Dynamo, and it tells what it has when that is worth a
store, not each time.
"""

from __future__ import annotations

import gc
from time import monotonic_ns
from typing import Any

from warmwatch._guard import report
from warmwatch._seams import Installed, Listener, look_up

_OLDEST = 2
_WORTH_TELLING_NS = 1_000_000


def install(listener: Listener) -> Installed:
    with look_up():
        from torch._dynamo.decorators import skip
        from torch.compiler import disable

        callbacks = gc.callbacks
    on_collected, clock = disable(listener.collected), monotonic_ns
    began = unsaid = 0

    def on_collection(phase: str, info: Any) -> None:
        nonlocal began, unsaid
        if info["generation"] != _OLDEST:
            return
        if phase == "start":
            began = clock()
            return
        if not began:  # it was put in place in the middle of one
            return
        unsaid += clock() - began
        began = 0
        if unsaid >= _WORTH_TELLING_NS:
            took, unsaid = unsaid, 0
            try:
                on_collected(took)
            except Exception as error:  # noqa: BLE001 - Python would print it
                report("hooks.garbage", error)

    def put() -> None:
        if on_collection not in callbacks:
            callbacks.append(on_collection)

    def remove() -> None:
        if on_collection in callbacks:
            callbacks.remove(on_collection)

    skip(on_collection)  # its code is marked: it stays the same function
    put()
    return Installed(uninstall=remove, rearm=put)
