"""What a series of one rank is: name, help, labels, and where the value comes from.

The tables are in ``rank_series`` and ``compile_series``. A reader returns ``None`` where nothing is
known: then there is no series, never a 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from warmwatch.record import CompileCounts, Slot, Warmup
from warmwatch_monitor.export import figures
from warmwatch_monitor.model import ProcessReading, RankView


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One rank with the figures that several series share."""

    view: RankView
    phase_ns: tuple[int, ...]
    warmup: Warmup | None
    gpu_seconds: float | None

    @property
    def slot(self) -> Slot:
        return self.view.reading.slot

    @property
    def compile(self) -> CompileCounts:
        return self.view.reading.slot.compile

    @property
    def process(self) -> ProcessReading | None:
        return self.view.process


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One value for each rank, or with ``label`` one for each of ``values``, in their order.

    ``seam`` is where the agent has the numbers from; a torch without it gives no such series.
    """

    name: str
    type: str
    help: str
    read: Callable[[Rank], Sequence[float | None] | None]
    label: str | None = None
    values: tuple[str, ...] = ("",)
    seam: str | None = None


def rank(view: RankView, now_ns: int) -> Rank:
    """``view`` with its shared figures, as of ``now_ns``."""
    return Rank(
        view=view,
        phase_ns=figures.phase_ns(view, now_ns),
        warmup=figures.ended_warmup(view.reading.slot),
        gpu_seconds=figures.gpu_seconds(view, now_ns),
    )


def gauge(name: str, help: str, read: Callable[[Rank], float | None]) -> Series:
    return Series(name=name, type="gauge", help=help, read=_single(read))


def counter(
    name: str, help: str, read: Callable[[Rank], float | None], seam: str | None = None
) -> Series:
    return Series(name=name, type="counter", help=help, read=_single(read), seam=seam)


def _single(read: Callable[[Rank], float | None]) -> Callable[[Rank], Sequence[float] | None]:
    def sequence(rank: Rank) -> Sequence[float] | None:
        value = read(rank)
        return None if value is None else (value,)

    return sequence


def one_hot(chosen: str | None, names: tuple[str, ...]) -> list[float]:
    return [float(name == chosen) for name in names]
