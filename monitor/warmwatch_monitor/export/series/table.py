"""What the tables of series are made of: a name, its help, and where the value comes from.

A row of a table is a :class:`Series`; ``family`` makes a Family of it and what it speaks of: ranks
or GPUs. A reader returns ``None`` where nothing is known: then there is no sample, never a 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from warmwatch_monitor.export.series.family import Family, Type
from warmwatch_monitor.export.series.labels import Labels

T = TypeVar("T")


class Series(Struct, Generic[T], frozen=True, kw_only=True):
    """One value for each ``T``, which ``read`` gives.

    With ``label`` one for each of ``columns``, which ``read_columns`` gives by name; without
    ``columns`` they are those that there are.
    """

    name: str
    type: Type
    help: str
    read: Callable[[T], float | None] | None = None
    label: str = ""
    columns: Sequence[str] = ()
    read_columns: Callable[[T], Mapping[str, float] | None] | None = None

    def family(self, subjects: Sequence[tuple[Labels, T]]) -> Family:
        """The family of this series over ``subjects``."""
        family = Family(
            name=self.name.removesuffix("_total"), help=self.help, type=self.type, label=self.label
        )
        if self.read is not None:
            for labels, subject in subjects:
                family.add(labels, self.read(subject))
        if self.read_columns is not None:
            read = [(labels, self.read_columns(subject)) for labels, subject in subjects]
            rows = [(labels, values) for labels, values in read if values]
            family.columns = self.columns or list(dict.fromkeys(c for _, vs in rows for c in vs))
            for labels, values in rows:
                family.rows.append((labels, [values.get(name) for name in family.columns]))
        return family


def gauge(name: str, help: str, read: Callable[[T], float | None]) -> Series[T]:
    return Series(name=name, type="gauge", help=help, read=read)


def counter(name: str, help: str, read: Callable[[T], float | None]) -> Series[T]:
    return Series(name=name, type="counter", help=help, read=read)


def gauges(
    name: str,
    help: str,
    label: str,
    columns: Sequence[str],
    read: Callable[[T], Mapping[str, float] | None],
) -> Series[T]:
    return _labelled("gauge", name, help, label, columns, read)


def counters(
    name: str,
    help: str,
    label: str,
    columns: Sequence[str],
    read: Callable[[T], Mapping[str, float] | None],
) -> Series[T]:
    return _labelled("counter", name, help, label, columns, read)


def _labelled(
    type: Type,
    name: str,
    help: str,
    label: str,
    columns: Sequence[str],
    read: Callable[[T], Mapping[str, float] | None],
) -> Series[T]:
    return Series(name=name, type=type, help=help, label=label, columns=columns, read_columns=read)


def one_hot(chosen: Iterable[str | None], columns: Sequence[str]) -> dict[str, float]:
    """1 for those that are chosen, 0 for the others."""
    on = frozenset(chosen)
    return {column: float(column in on) for column in columns}
