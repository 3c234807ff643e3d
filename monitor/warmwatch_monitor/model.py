"""The values that flow through the monitor: readings, health, and the Snapshot made of them.

All are frozen: a source makes readings, the poller makes one Snapshot of them and publishes it by
one assignment, exports and views only read it. ``None`` is "not known", never 0. Monotonic times
are nanoseconds (``*_ns``); everything else is seconds, bytes, and seconds since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

from warmwatch.record import Slot
from warmwatch.verdict import Judgement, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """One compilation, from a record's journal.

    Attributes:
        id: PyTorch's compile id, such as ``0/1``. kind: one of ``record.KINDS``.
        at_ns: when it ended. seconds: how long it took, ``None`` where PyTorch does not say.
        reason: why it was compiled again, in PyTorch's words. category: one of
        ``record.CATEGORIES``, ``None`` for a first compile.
        name: the function compiled. cache: ``hit``, ``miss``, or ``None`` where none was asked.
        failure: the exception's type where it failed.
    """

    id: str
    kind: str
    at_ns: int
    seconds: float | None = None
    reason: str | None = None
    category: str | None = None
    name: str | None = None
    cache: str | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """A frame that hit the recompile limit, from a record's journal.

    Attributes:
        at_ns: when. step: how many steps there were; it runs eagerly from the next one on.
        name: the function. limit: the limit that it hit, ``setting`` the config's name for it.
    """

    at_ns: int
    step: int
    name: str | None = None
    limit: int | None = None
    setting: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordReading:
    """One record as it was read.

    Attributes:
        folder: the record's folder, an id for the life of the process it speaks for.
        slot: its numbers. alive: whether a process holds its lock.
        pid: of the holder in this reader's own pid namespace; ``None`` where not alive.
        gone_ns: when this reader saw the lock free after it had seen it held; else ``None``.
        compilations, fallbacks: the last ones, oldest first.
        broken_lines: journal lines that were torn.
    """

    folder: str
    slot: Slot
    alive: bool
    pid: int | None = None
    gone_ns: int | None = None
    compilations: tuple[Compilation, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()
    broken_lines: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Something in a record directory that cannot be read, and why, in one sentence."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReading:
    """What the host says of one training process and its compile workers.

    A worker is busy where its CPU time grew since the last look, not where it exists; ``None``
    where there was no earlier look. ``cpu_ratio`` is the process's own use of one core.
    """

    pid: int
    cpu_seconds: float
    resident_bytes: int
    cpu_ratio: float | None = None
    workers_busy: int | None = None
    workers_idle: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceHealth:
    """How a source fares, apart from what it read. ``error`` is one sentence, or ``None``."""

    source: str
    up: bool
    last_success: float | None = None
    read_seconds: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankView:
    """One rank, judged."""

    reading: RecordReading
    judgement: Judgement
    process: ProcessReading | None = None

    @property
    def run(self) -> str:
        return self.reading.slot.identity.run

    @property
    def rank(self) -> int:
        return self.reading.slot.identity.rank


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run: its ranks in order, and its state, that of its least advanced living rank."""

    run: str
    state: State
    ranks: tuple[RankView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that was known at one moment, on both clocks. Runs are in order of their names."""

    epoch: float
    now_ns: int
    runs: tuple[RunView, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    sources: tuple[SourceHealth, ...] = ()
    directories: tuple[str, ...] = ()
