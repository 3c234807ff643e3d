"""The answer from the records, which a command without a daemon reads itself."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from msgspec import to_builtins

from warmwatch_monitor.base.settings import Settings
from warmwatch_monitor.base.timeouts import hangs
from warmwatch_monitor.client.choice import Answer
from warmwatch_monitor.history.earlier_runs_source import earlier_runs_source
from warmwatch_monitor.model.snapshot import Snapshot
from warmwatch_monitor.pipeline.poller import Poller
from warmwatch_monitor.sources.listed import SOURCES, Source
from warmwatch_monitor.status.document import status

LEAST_SECONDS = 0.5


def make_poller(settings: Settings, *more: Source[Any]) -> Poller:
    """The poller over the listed sources and ``more``, which replace those of the same name."""
    sources = {source.name: source for source in (*SOURCES, *more)}
    return Poller(settings, sources=tuple(sources.values()))


class RecordsReader:
    """Reads the records here. One poller serves all calls: it sees what changes between them."""

    def __init__(self, settings: Settings, on_read: Callable[[Snapshot], None] | None) -> None:
        self._settings, self._on_read = settings, on_read
        self._poller = make_poller(settings, *earlier_runs_source(settings.history))

    def read(self, deadline: float | None) -> Answer:
        """The present answer, by ``deadline`` on the monotonic clock if one is given."""
        if deadline is not None:
            seconds = max(LEAST_SECONDS, deadline - time.monotonic())
        else:  # one that hung when the settings were checked is given little more time
            seconds = LEAST_SECONDS if all(map(hangs, self._settings.directories)) else math.inf
        snapshot = self._poller.poll_once(seconds)
        if self._on_read is not None:
            self._on_read(snapshot)
        answer: Answer = to_builtins(status(snapshot))
        return answer
