"""The traces of the runs that a daemon sees: of its last hour, begun where one left off."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from warmwatch.states import ENDED_STATES
from warmwatch_monitor.model import RunView
from warmwatch_monitor.model.account import Samples
from warmwatch_monitor.remembered.making import began_at, ended_at, id_of
from warmwatch_monitor.remembered.store import Store
from warmwatch_monitor.remembered.traces import (
    TRACED_OF_GPU,
    TRACED_OF_RANK,
    Trace,
    gpu_rows,
    rank_rows,
    rows_of_each,
)

_SECONDS = 3600
_SECOND = 1.0  # the one that is now is not over

Past = Callable[[int, str], Mapping[str, Any]]
Known = tuple[Mapping[int, Samples], Mapping[str, Samples]]


class _OfRun:
    """The traces of one run."""

    def __init__(self, run: RunView, before: Known) -> None:
        of_ranks, of_gpus = before
        uuids = {uuid for view in run.ranks for uuid in view.gpu_uuids} | set(of_gpus)
        self._most = rows_of_each(len(run.ranks) + len(uuids))
        self.ranks = {
            rank: Trace(TRACED_OF_RANK, self._most, known) for rank, known in of_ranks.items()
        }
        self.gpus = {uuid: Trace(TRACED_OF_GPU, self._most, one) for uuid, one in of_gpus.items()}

    @property
    def last(self) -> float:
        """Up to when any is known."""
        return max((one.last for one in (*self.ranks.values(), *self.gpus.values())), default=0.0)

    def fill(self, run: RunView, past: Mapping[str, Any], until: float) -> None:
        """What is new up to ``until``."""
        began = began_at(run) - _SECOND
        ends = (ended_at(run) or 0.0) - _SECOND if not run.living else 0.0
        for view in run.ranks:
            trace = self.ranks.setdefault(view.rank, Trace(TRACED_OF_RANK, self._most))
            for epoch, values in rank_rows(past, run.run, view.rank):
                # until its record appears, what is seen by this name is how an earlier start ended
                of_another = values["state"] in ENDED_STATES and (not ends or epoch < ends)
                if began <= epoch <= until and not of_another:
                    trace.add(epoch, values)
        for uuid in {uuid for view in run.ranks for uuid in view.gpu_uuids}:
            gpu = self.gpus.setdefault(uuid, Trace(TRACED_OF_GPU, self._most))
            for epoch, values in gpu_rows(past, uuid):
                if began <= epoch <= until:
                    gpu.add(epoch, values)


class Traces:
    """Of all runs. ``past``: the columns of the last so many seconds of a run, and of all GPUs
    (``views/history``), a value for each second.
    """

    def __init__(self, store: Store, past: Past) -> None:
        self._store, self._past = store, past
        self._known: dict[str, _OfRun] = {}

    def of(self, run: RunView, now: float) -> Known:
        """What is known of its ranks and its GPUs by ``now``. Raises StoreError."""
        id = id_of(run)
        known = self._known.get(id)
        if known is None:
            known = self._known[id] = _OfRun(run, self._store.samples(id))
        passed = now - max(known.last, began_at(run)) + 2 * _SECOND
        seconds = min(_SECONDS, max(2, math.ceil(passed)))
        ended = ended_at(run)
        until = now - _SECOND if run.living else now if ended is None else ended + _SECOND
        known.fill(run, self._past(seconds, run.run), until)
        ranks = {rank: one.samples() for rank, one in known.ranks.items()}
        gpus = {uuid: one.samples() for uuid, one in known.gpus.items()}
        return (
            {rank: samples for rank, samples in ranks.items() if samples is not None},
            {uuid: samples for uuid, samples in gpus.items() if samples is not None},
        )

    def forget_others(self, ids: Collection[str]) -> None:
        """Keep nothing of other runs."""
        self._known = {id: one for id, one in self._known.items() if id in ids}
