"""Tables that stay small however long a training runs: over their limit they drop the oldest entry.

The agent knows objects of the training by weak references without a callback. A callback in Python
runs wherever an object dies, and Python discards its exceptions: it would lose a
``KeyboardInterrupt`` that arrives meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar
from weakref import ref

MOST_THREADS = 1024  # that compile at the same time

K = TypeVar("K")
V = TypeVar("V")


class Bounded(dict[K, V]):
    """A dictionary with at most ``most`` entries. Only item assignment adds any."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        while len(self) > self._most:
            try:
                self.pop(next(iter(self)), None)
            except (RuntimeError, StopIteration):  # another thread changes it
                return


class OfObjects(Generic[V]):
    """A value for each of the last ``most`` objects, which may die meanwhile."""

    def __init__(self, most: int) -> None:
        self._known: Bounded[int, tuple[ref[object], V]] = Bounded(most)

    def get(self, value: object) -> V | None:
        pair = self._known.get(id(value))
        return pair[1] if pair is not None and pair[0]() is value else None  # ids are reused

    def set(self, item: object, value: V) -> None:
        self._known[id(item)] = ref(item), value

    def pop(self, item: object) -> V | None:
        value = self.get(item)
        self._known.pop(id(item), None)
        return value

    def living(self) -> Iterator[object]:
        """The objects that are alive; the others are dropped."""
        for key, (item, _) in tuple(self._known.items()):
            if (value := item()) is not None:
                yield value
            else:
                self._known.pop(key, None)
