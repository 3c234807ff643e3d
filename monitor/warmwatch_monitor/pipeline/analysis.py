"""From records to runs: judge, add up energy, find what limits the speed, estimate the time left.

Each step runs in isolation. A record that cannot be judged becomes one refusal. A step that raises
leaves its part out and is reported as a problem.

Loaded with the first record: a host without records needs none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from warmwatch_monitor.errors import described
from warmwatch_monitor.model import GpuReading, RankHistory, RecordReading, Refusal, RunView
from warmwatch_monitor.pipeline.energy import EnergyUsed, charge, retained
from warmwatch_monitor.pipeline.estimates import with_estimates
from warmwatch_monitor.pipeline.judging import Around, Judging
from warmwatch_monitor.pipeline.limits import Windows, with_limits
from warmwatch_monitor.settings import Settings

if TYPE_CHECKING:
    from warmwatch_monitor.sources.host import HostAndProcesses

T = TypeVar("T")

_SHORTEST_RETENTION = 60.0
_NOTHING: tuple[tuple[RunView, ...], tuple[Refusal, ...]] = ((), ())


class Analysed(Struct, frozen=True, kw_only=True):
    """The runs, the records that cannot be judged, and the problems, one sentence each."""

    runs: tuple[RunView, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    problems: tuple[str, ...] = ()


class Analysis:
    """Makes the runs of each Snapshot. Holds the state that spans several of them."""

    def __init__(self, settings: Settings) -> None:
        self._retention_ns = round(max(settings.retention, _SHORTEST_RETENTION) * 1e9)
        self._energy: dict[str, EnergyUsed] = {}
        self._windows: Windows = {}
        self._judging = Judging(round((settings.long_compile or 0.0) * 1e9))

    def of(
        self,
        records: Collection[RecordReading],
        present: Collection[str] | None,
        host: HostAndProcesses | None,
        gpus: tuple[GpuReading, ...],
        histories: Mapping[str, RankHistory],
        now_ns: int,
    ) -> Analysed:
        """The runs at ``now_ns``; ``present`` as for :meth:`Judging.of`."""
        isolated = _IsolatedSteps()
        around = _around(host, gpus, histories, now_ns)
        runs, unjudged = isolated.run(
            "judging the runs", partial(self._judging.of, records, around, present), _NOTHING
        )
        energy = retained(self._energy, present, now_ns, self._retention_ns)
        self._energy, runs = isolated.run(
            "adding up energy", partial(charge, energy, runs, now_ns), (energy, runs)
        )
        self._windows, runs = isolated.run(
            "judging what limits the speed",
            partial(with_limits, runs, self._windows, around.host, now_ns),
            (self._windows, runs),
        )
        runs = isolated.run(
            "estimating the time left", partial(with_estimates, runs, now_ns, histories), runs
        )
        return Analysed(runs=runs, refusals=unjudged, problems=tuple(isolated.problems))


class _IsolatedSteps:
    """Runs the steps of one analysis, each in isolation, and collects their problems."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def run(self, what: str, step: Callable[[], T], default: T) -> T:
        """The result of ``step``; ``default`` if it raises."""
        try:
            return step()
        except Exception as error:  # noqa: BLE001 - a failing step is a fact to show, not the end
            self.problems.append(f"{what}: {described(error)}")
            return default


def _around(
    host: HostAndProcesses | None,
    gpus: tuple[GpuReading, ...],
    histories: Mapping[str, RankHistory],
    now_ns: int,
) -> Around:
    if host is None:
        return Around(now_ns=now_ns, gpus=gpus, histories=histories)
    return Around(
        now_ns=now_ns,
        processes=host.processes,
        gpus=gpus,
        host=host.machine,
        oom_killed=host.oom_killed,
        histories=histories,
    )
