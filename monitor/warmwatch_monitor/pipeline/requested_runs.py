"""The names of runs that clients requested lately: their records are read and shown first.

Bounded per client, so that no client can push out what another one requested.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from warmwatch_monitor.clock import Clock
from warmwatch_monitor.model.budgets import REQUESTED_OF_A_PEER, REQUESTING_PEERS

_VALID_NS = 30 * 10**9


class RequestedRuns:
    """Used from the event loop, and from the thread that reads the records."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._peers: OrderedDict[str, OrderedDict[str, int]] = OrderedDict()

    def note(self, run: str, peer: str) -> None:
        """A client, named by ``peer``, requested ``run`` now."""
        with self._lock:
            runs = self._peers.setdefault(peer, OrderedDict())
            runs[run] = self._clock.monotonic_ns()
            runs.move_to_end(run)
            if len(runs) > REQUESTED_OF_A_PEER:
                runs.popitem(last=False)
            self._peers.move_to_end(peer)
            if len(self._peers) > REQUESTING_PEERS:
                self._peers.popitem(last=False)

    def names(self) -> frozenset[str]:
        """The names that were requested in the last 30 s, without the owners that some name."""
        since = self._clock.monotonic_ns() - _VALID_NS
        with self._lock:
            found = [run for runs in self._peers.values() for run, at in runs.items() if at > since]
        return frozenset((*found, *(run.rpartition("@")[0] for run in found if "@" in run)))
