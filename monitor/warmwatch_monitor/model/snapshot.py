"""All of it, joined and judged: the Snapshot that exports and views read."""

from __future__ import annotations

from dataclasses import dataclass

from warmwatch.verdict import Judgement, State
from warmwatch_monitor.model.machine import (
    ExportHealth,
    GpuReading,
    HostReading,
    ObservedTraining,
    ProcessReading,
    SourceHealth,
)
from warmwatch_monitor.model.records import RecordReading, Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What a rank's GPUs spent since this monitor first saw the rank; nothing before is guessed.

    Attributes:
        compile_joules: while it compiled. compile_seconds: the compile time that this covers, so
        that a monitor that came late can say of how much it speaks.
        clean_joules: for clean_steps clean steps, each GPU of several counting for its share.
    """

    compile_joules: float = 0.0
    compile_seconds: float = 0.0
    clean_joules: float = 0.0
    clean_steps: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankView:
    """One rank, judged, and joined with what its host and its GPUs say.

    ``gpus`` are the readings of those of its devices that NVML knows here; the uuids of all of
    them are in the record's identity. ``spending`` is ``None`` where no energy was measured.
    ``working_ns`` is when its process or its GPUs were last seen to work, 0 where they never were.
    ``oom_killed``: of a lost rank, whether the kernel killed it for want of memory; ``None`` where
    nobody can tell.
    """

    reading: RecordReading
    judgement: Judgement
    process: ProcessReading | None = None
    gpus: tuple[GpuReading, ...] = ()
    spending: Spending | None = None
    working_ns: int = 0
    oom_killed: bool | None = None

    @property
    def run(self) -> str:
        return self.reading.slot.identity.run

    @property
    def rank(self) -> int:
        return self.reading.slot.identity.rank


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run: its ranks in order, and its state, that of its least advanced living rank.

    ``ended_together``: whether all its ranks here ended within seconds, as those of a job do that
    somebody cancels; ``False`` where a part of them is gone, ``None`` where none is, where nobody
    saw when, and of one rank, which cannot tell.
    """

    run: str
    state: State
    ranks: tuple[RankView, ...]
    ended_together: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that was known at one moment, on both clocks. Runs are in order of their names.

    ``more_refusals`` is how many there are beside ``refusals``. ``late_seconds`` is its age where
    it is older than a Snapshot should be when it is asked for, else ``None``.
    """

    epoch: float
    now_ns: int
    runs: tuple[RunView, ...] = ()
    gpus: tuple[GpuReading, ...] = ()
    observed: tuple[ObservedTraining, ...] = ()
    host: HostReading | None = None
    refusals: tuple[Refusal, ...] = ()
    more_refusals: int = 0
    sources: tuple[SourceHealth, ...] = ()
    exports: tuple[ExportHealth, ...] = ()
    directories: tuple[str, ...] = ()
    late_seconds: float | None = None
