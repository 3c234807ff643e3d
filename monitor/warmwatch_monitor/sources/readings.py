"""What a source is: an entry in the list, and a function that reads it.

A source is told what the others read last, for some need it: the host is asked for the processes
that the records name. Its own reading has the type that its entry promises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, cast

from msgspec import Struct, field

from warmwatch_monitor.clock import Clock
from warmwatch_monitor.config import Settings
from warmwatch_monitor.model import Remembered

PRECEDENTS = "precedents"  # what the history knows of the runs that are seen, where one is kept

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Read = Callable[["Readings"], T]


def _no_problem(_reading: Any) -> str | None:
    return None


def _nothing_unread(_reading: Any) -> int:
    return 0


class Source(Struct, Generic[T_co], frozen=True, kw_only=True):
    """One entry of the list of sources.

    Attributes:
        name: the public one, in ``/status`` and as a label.
        interval: seconds between two looks, ``None`` where the settings leave it alone.
        make: begins to follow it, and gives the function that reads it.
        problem: why a reading lacks what was there before, so that the source counts as down
        though the rest of the reading is used; ``None`` where nothing is wrong.
        unread: how much of a reading is left to the next reads: a command reads until it is none.
        once_seconds: for how long a command that reads it once waits for it, where not as usual.
    """

    name: str
    interval: Callable[[Settings], float | None]
    make: Callable[[Settings, Clock], Read[T_co]]
    problem: Callable[[Any], str | None] = _no_problem
    unread: Callable[[Any], int] = _nothing_unread
    once_seconds: float | None = None


class Readings(Struct, frozen=True, kw_only=True):
    """What each source read last; a source that failed, or fell silent, is not in it."""

    values: Mapping[str, Any] = field(default_factory=dict)

    def of(self, source: Source[T]) -> T | None:
        """What ``source`` read last; ``None`` where that is not known now."""
        return cast("T | None", self.values.get(source.name))

    @property
    def remembered(self) -> Mapping[str, Remembered] | None:
        """What the history knows, by record; ``None`` where none is kept, or it cannot be read."""
        return cast("Mapping[str, Remembered] | None", self.values.get(PRECEDENTS))
