"""The DataLoader iterator that handed out a thread's last batch, and whether an epoch ended in it.

A recompile for the last, smaller batch of an epoch has a remedy of its own. Holds the iterator
weakly, and looks at it only when something recompiles.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any


class _Thread(threading.local):
    iterator: weakref.ref[Any] | None = None


_thread = _Thread()


def handed_out(iterator: Any) -> None:
    """``iterator`` handed a batch to the calling thread."""
    _thread.iterator = weakref.ref(iterator)


def ragged_last_batch() -> tuple[int, int] | None:
    """The size of this thread's last batch and the loader's batch size.

    ``None`` unless that batch was the last one of an epoch and smaller, or if the loader does not
    know its end, as for an iterable dataset.
    """
    iterator = None if _thread.iterator is None else _thread.iterator()
    sampler: Any = getattr(iterator, "_index_sampler", None)
    size, drops = getattr(sampler, "batch_size", None), getattr(sampler, "drop_last", True)
    if type(size) is not int or drops or size < 1:
        return None
    try:
        left, batches = len(sampler.sampler) % size, len(sampler)
    except (AttributeError, NotImplementedError, TypeError):
        return None
    is_last = getattr(iterator, "_num_yielded", None) == batches
    return (left, size) if left and is_last else None
