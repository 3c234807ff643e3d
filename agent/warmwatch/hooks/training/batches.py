"""Batches that ``torch.utils.data.DataLoader`` hands out, from its iterators' ``__next__``.

One method of one class serves the iterators of all kinds. What ``next()`` raises (``StopIteration``
at an epoch's end) passes untouched and counts as nothing. A worker process does not iterate over a
DataLoader, and its record, if any, is its own. ``iter()`` is not timed: it starts the workers.

Our frames alone are hidden from Dynamo. What the iterator calls, such as a dataset's own code, is
compiled or not as it is without us; and a frame that is only skipped has no wrapper to pay for.
"""

from __future__ import annotations

import functools
from time import monotonic_ns
from typing import Any

from warmwatch._guard import report
from warmwatch.hooks.points import Installed, Listener, Replaced, look_up


def install(listener: Listener) -> Installed:
    with look_up():
        from torch._dynamo.decorators import skip
        from torch.utils.data import dataloader

        iterator = dataloader._BaseDataLoaderIter
        original = iterator.__dict__["__next__"]
    on_batch, clock = skip(listener.on_batch), monotonic_ns
    listening = True

    @functools.wraps(original)
    def next_batch(self: Any) -> Any:
        asked = clock()
        batch = original(self)
        if listening:
            try:
                on_batch(asked)
            except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
                report("hooks.batches", error)
        return batch

    replaced = Replaced()

    def uninstall() -> None:
        nonlocal listening
        listening = False
        replaced.undo()

    replaced.put(iterator, "__next__", skip(next_batch))
    return Installed(uninstall=uninstall)
