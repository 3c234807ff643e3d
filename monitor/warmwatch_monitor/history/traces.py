"""Traces of runs: samples over time, in bounded memory.

A trace has one row per second at first. When it is full, rows are merged in pairs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from math import floor

from warmwatch.shared.states import ENDED_STATES
from warmwatch_monitor.history.store import Store
from warmwatch_monitor.history.summaries import began_at, ended_at, id_of
from warmwatch_monitor.last_hour.ring import LastHour, seconds_of
from warmwatch_monitor.model.run_summary import Samples
from warmwatch_monitor.model.snapshot import RunView

MOST, FEWEST = 1_000, 100  # rows of a series
_MOST_OF_RUN = 16_000  # of all series of a run together
_MEANS = frozenset(
    {
        *("step_seconds", "compile_seconds"),
        *("utilization_ratio", "power_watts", "memory_used_bytes"),
    }
)
TRACED_OF_RANK = ("steps", "step_seconds", "compile_seconds", "state", "phase")
TRACED_OF_GPU = ("utilization_ratio", "power_watts", "memory_used_bytes")
_AT_REST = frozenset({None, "warm", "eager"})
_DIGITS = 6
Value = float | str | None


def rows_of_each(series: int) -> int:
    """The maximum number of rows of each of ``series`` series."""
    return max(FEWEST, min(MOST, _MOST_OF_RUN // max(1, series)))


class Trace:
    """One series. ``most``: maximum rows. ``before``: its samples from before a restart."""

    def __init__(self, names: Sequence[str], most: int, before: Samples | None = None) -> None:
        self._most, self._seconds = max(2, most), 1.0
        self._epochs: list[float] = []
        self._weights: list[float] = []
        self._columns: dict[str, list[Value]] = {name: [] for name in names}
        if before is not None:
            self._seconds = max(1.0, before.seconds)
            for at, epoch in enumerate(before.epochs):
                columns = ((name, before.columns.get(name, ())) for name in names)
                values = {
                    name: column[at] if at < len(column) else None for name, column in columns
                }
                self._append(epoch, values, self._seconds)

    @property
    def last(self) -> float:
        """Time of the last sample; 0 if there is none."""
        return self._epochs[-1] if self._epochs else 0.0

    def add(self, epoch: float, values: Mapping[str, Value]) -> None:
        """Add one second, if it is later than the last."""
        if epoch <= self.last:
            return
        if self._epochs and floor(epoch / self._seconds) == floor(self.last / self._seconds):
            self._merge(epoch, values)
        else:
            self._append(epoch, values, 1.0)
        while len(self._epochs) > self._most:
            self._coarsen()

    def samples(self) -> Samples | None:
        """The whole series; ``None`` if it is empty."""
        if not self._epochs:
            return None
        return Samples(
            seconds=self._seconds,
            epochs=tuple(self._epochs),
            columns={name: tuple(map(_rounded, column)) for name, column in self._columns.items()},
        )

    def _append(self, epoch: float, values: Mapping[str, Value], weight: float) -> None:
        self._epochs.append(epoch)
        self._weights.append(weight)
        for name, column in self._columns.items():
            column.append(values[name])

    def _merge(self, epoch: float, values: Mapping[str, Value], weight: float = 1.0) -> None:
        """Merge values into the last row."""
        before = self._weights[-1]
        for name, column in self._columns.items():
            column[-1] = _both(name, column[-1], before, values[name], weight)
        self._epochs[-1], self._weights[-1] = epoch, before + weight

    def _coarsen(self) -> None:
        old = list(zip(self._epochs, self._weights, *self._columns.values(), strict=True))
        names = tuple(self._columns)
        self._seconds *= 2
        self._epochs, self._weights = [], []
        self._columns = {name: [] for name in names}
        for epoch, weight, *values in old:
            row = dict(zip(names, values, strict=True))
            if self._epochs and floor(epoch / self._seconds) == floor(self.last / self._seconds):
                self._merge(epoch, row, weight)
            else:
                self._append(epoch, row, weight)


def _both(name: str, value: Value, weight: float, other: Value, more: float) -> Value:
    if other is None:
        return value
    if name == "state":
        return value if other in _AT_REST and value is not None else other
    if value is None or name not in _MEANS:
        return other
    assert isinstance(value, float | int)
    assert isinstance(other, float | int)
    return (value * weight + other * more) / (weight + more)


def _rounded(value: Value) -> Value:
    return round(value, _DIGITS) if isinstance(value, float) else value


_SECOND = 1.0  # the current second is incomplete

Known = tuple[Mapping[int, Samples], Mapping[str, Samples]]


class _OfRun:
    """The traces of one run."""

    def __init__(self, run: RunView, before: Known) -> None:
        of_ranks, of_gpus = before
        uuids = {uuid for view in run.ranks for uuid in view.gpu_uuids} | set(of_gpus)
        self._most = rows_of_each(len(run.ranks) + len(uuids))
        self.ranks = {
            rank: Trace(TRACED_OF_RANK, self._most, samples) for rank, samples in of_ranks.items()
        }
        self.gpus = {
            uuid: Trace(TRACED_OF_GPU, self._most, samples) for uuid, samples in of_gpus.items()
        }

    @property
    def last(self) -> float:
        """Time of the last sample of any series."""
        return max((rank.last for rank in (*self.ranks.values(), *self.gpus.values())), default=0.0)

    def fill(self, run: RunView, hour: LastHour, seconds: int, until: float) -> None:
        """Add the last ``seconds``, from the last sample up to ``until``."""
        began = began_at(run) - _SECOND
        ends = (ended_at(run) or 0.0) - _SECOND if not run.living else 0.0
        for view in run.ranks:
            trace = self.ranks.setdefault(view.rank, Trace(TRACED_OF_RANK, self._most))
            key = run.run, view.rank
            for epoch, values in seconds_of(hour, key, TRACED_OF_RANK, seconds):
                # before its record appears, samples of this name belong to an earlier run
                of_another = values["state"] in ENDED_STATES and (not ends or epoch < ends)
                is_seen = values["steps"] is not None
                if is_seen and began <= epoch <= until and not of_another:
                    trace.add(epoch, values)
        for uuid in {uuid for view in run.ranks for uuid in view.gpu_uuids}:
            gpu = self.gpus.setdefault(uuid, Trace(TRACED_OF_GPU, self._most))
            for epoch, values in seconds_of(hour, uuid, TRACED_OF_GPU, seconds):
                is_seen = any(value is not None for value in values.values())
                if is_seen and began <= epoch <= until:
                    gpu.add(epoch, values)


class Traces:
    """The traces of all runs, from the seconds of the last hour."""

    def __init__(self, store: Store, hour: LastHour) -> None:
        self._store, self._hour = store, hour
        self._known: dict[str, _OfRun] = {}

    def of(self, run: RunView, now: float) -> Known:
        """The samples of its ranks and GPUs up to ``now``. Raises StoreError."""
        id = id_of(run)
        of_run = self._known.get(id)
        if of_run is None:
            of_run = self._known[id] = _OfRun(run, self._store.samples(id))
        passed = now - max(of_run.last, began_at(run)) + 2 * _SECOND
        seconds = max(2, math.ceil(passed))
        ended = ended_at(run)
        until = now - _SECOND if run.living else now if ended is None else ended + _SECOND
        of_run.fill(run, self._hour, seconds, until)
        ranks = {rank: trace.samples() for rank, trace in of_run.ranks.items()}
        gpus = {uuid: trace.samples() for uuid, trace in of_run.gpus.items()}
        return (
            {rank: samples for rank, samples in ranks.items() if samples is not None},
            {uuid: samples for uuid, samples in gpus.items() if samples is not None},
        )

    def forget_others(self, ids: Collection[str]) -> None:
        """Drop the traces of other runs."""
        self._known = {id: run for id, run in self._known.items() if id in ids}
