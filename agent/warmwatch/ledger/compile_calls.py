"""What ``torch.compile`` was called with, and whether compilation is turned off. Bounded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from warmwatch.ledger.counters import CounterStore, FirstStep, PytorchState
from warmwatch.shared.record import COMPILE_INDEX as AT

_MOST_WAYS = 20


class CompileCalls:
    """Reports each distinct call of ``torch.compile``, once there is a record."""

    def __init__(self, counters: CounterStore, state: PytorchState, first_step: FirstStep) -> None:
        self._block, self._store, self._state = counters.block, counters.store, state
        self._first_step = first_step
        self._ways: list[Mapping[str, Any]] = []
        self._reported, self._is_open = 0, False

    def compile_called(self, way: Mapping[str, Any], now: int, requested_at: int) -> None:
        """``requested_at``: of ``CompileCounts``, 0 if this call does not change it."""
        self._block[AT["wrappers"]] += 1
        if requested_at:
            self._block[AT["requested_at"]] = requested_at
        if way not in self._ways and len(self._ways) < _MOST_WAYS:
            self._ways.append(way)
        self._report_calls(now)
        self._state.read_disabled()
        self._store.publish(self._block)

    def opened(self, graphs: int, now: int) -> None:
        self._block[AT["graphs_before"]] = graphs
        self._state.read_optimizers()
        self._is_open = True
        self._report_calls(now)
        self._store.publish(self._block)

    def _report_calls(self, now: int) -> None:
        """Write a line for each call of ``torch.compile`` not yet reported."""
        if self._is_open:
            new, self._reported = self._ways[self._reported :], len(self._ways)
            for way in new:
                self._store.note("wrapped", now, way)

    def optimizer_made(self) -> None:
        if not self._block[AT["optimizers"]]:
            self._block[AT["optimizers"]] = 1
            self._first_step.optimizer_made()
            self._store.publish(self._block)

    def precompiled(self, kinds: Iterable[str]) -> None:
        if self._state.read_precompiled(kinds):
            self._store.publish(self._block)

    def check_disabled(self) -> None:
        if self._state.read_disabled():
            self._store.publish(self._block)
