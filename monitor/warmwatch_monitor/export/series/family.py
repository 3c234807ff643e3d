"""A family of series with its samples: what /metrics, OTLP and a registry are made of.

Samples are in rows: one for each rank (or GPU, or source), with a value for each of the family's
columns, which are the values of its own label. A family without a label of its own has one column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct, field

from warmwatch_monitor.export.series.labels import Labels

Type = Literal["gauge", "counter", "info", "histogram"]

ONE_COLUMN = ("",)
_SUFFIXES = {"counter": "_total", "info": "_info"}


class Distribution(Struct, frozen=True, kw_only=True):
    """A histogram's value: how many were at most each of the bounds, how many in all, their sum."""

    upto: Sequence[int]
    count: int
    sum: float


Value = float | Distribution | None


class Family(Struct):
    """One family.

    Attributes:
        name: as OpenMetrics has it, without ``_total`` or ``_info``. help, type: its metadata.
        label: its own label, or "". columns: the values of that.
        bounds: of a histogram, the upper bounds of its buckets but the last.
        rows: the labels that a row's samples share, and its values, in the order of columns; there
        is no sample where a value is ``None``.
    """

    name: str
    help: str
    type: Type
    label: str = ""
    columns: Sequence[str] = ONE_COLUMN
    bounds: Sequence[float] = ()
    rows: list[tuple[Labels, Sequence[Value]]] = field(default_factory=list)

    @property
    def sample_name(self) -> str:
        """As a sample of it is called; those of a histogram have endings of their own."""
        return self.name + _SUFFIXES.get(self.type, "")

    def add(self, labels: Labels, value: Value) -> None:
        """A row of one value; ``None`` is not known, and adds nothing."""
        if value is not None:
            self.rows.append((labels, (value,)))

    @property
    def empty(self) -> bool:
        """Whether it has no sample."""
        return next(self.samples(), None) is None

    def samples(self) -> Iterator[tuple[Labels, str, float | Distribution]]:
        """Every value that is known: the row's labels, the column, the value."""
        for labels, values in self.rows:
            for column, value in zip(self.columns, values, strict=True):
                if value is not None:
                    yield labels, column, value
