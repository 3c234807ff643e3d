"""Batches that ``torch.utils.data.DataLoader`` hands out, from its iterators' ``__next__``.

One method of one class serves all iterators. Exceptions of ``next()`` (``StopIteration`` at an
epoch's end) pass through and do not count. A worker process does not iterate over a DataLoader, and
has its own record, if any. ``iter()`` is not timed: it starts the workers.

Only the agent's frames are hidden from Dynamo. Code that the iterator calls, such as a dataset's,
compiles as it does without the agent, and a skipped frame needs no wrapper.
"""

from __future__ import annotations

import functools
from time import monotonic_ns
from typing import Any

from warmwatch._guard import report
from warmwatch.hooks.last_batch import handed_out
from warmwatch.hooks.points import Installed, Listener, Replaced, look_up, skip_frames


def install(listener: Listener) -> Installed:
    with look_up():
        from torch.utils.data import dataloader

        iterator = dataloader._BaseDataLoaderIter
        original = iterator.__next__
    on_batch, clock, last = listener.on_batch, monotonic_ns, handed_out
    skip_frames(on_batch, last)
    replaced = Replaced()

    @functools.wraps(original)
    def next_batch(self: Any) -> Any:
        requested_ns = clock()
        batch = original(self)
        if replaced.listening:
            try:
                last(self)
                on_batch(requested_ns)
            except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
                report("hooks.batches", error)
        return batch

    replaced.put(iterator, "__next__", next_batch)
    return Installed(uninstall=replaced.undo)
