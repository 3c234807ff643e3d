"""What the program does and reports: its calls of ``torch.compile``, its optimizers, the work of a
step, its end; and whether compilation is turned off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warmwatch.ledger.counters import CounterStore, FirstStep, PytorchState
from warmwatch.process.ending import End
from warmwatch.shared import record
from warmwatch.shared.record import COMPILE_INDEX as AT

_MOST_WAYS = 20
_LARGEST = 2**64 - 1


class Program:
    """Handlers of these facts. A call of ``torch.compile`` is written once there is a record."""

    def __init__(self, counters: CounterStore, state: PytorchState, first_step: FirstStep) -> None:
        self._block, self._store, self._state = counters.block, counters.store, state
        self._first_step = first_step
        self._ways: list[Mapping[str, Any]] = []
        self._reported, self._is_open = 0, False

    def wrapped(self, _fact: str, now: int, values: Mapping[str, Any]) -> None:
        """The user's program called ``torch.compile``."""
        way = {name: value for name, value in values.items() if name != "trains"}
        self._block[AT["wrappers"]] += 1
        if values["trains"]:
            self._block[AT["requested_at"]] = 1 + self._store.steps()
        if way not in self._ways and len(self._ways) < _MOST_WAYS:
            self._ways.append(way)
        self._report_calls(now)
        self._state.read_disabled()
        self._store.publish(self._block)

    def opened(self, _fact: str, now: int, values: Mapping[str, Any]) -> None:
        """The record exists; so many ``graphs`` had been captured before it began."""
        self._block[AT["graphs_before"]] = values["graphs"]
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

    def optimizer(self, _fact: str, _now: int, _values: Mapping[str, Any]) -> None:
        """The process made one: from now on only steps show that it is warm."""
        if not self._block[AT["optimizers"]]:
            self._block[AT["optimizers"]] = 1
            self._first_step.optimizer_made()
            self._store.publish(self._block)

    def precompiled(self, _fact: str, _now: int, values: Mapping[str, Any]) -> None:
        if self._state.read_precompiled((values["kind"],)):
            self._store.publish(self._block)

    def disabled(self, _fact: str, _now: int, _values: Mapping[str, Any]) -> None:
        if self._state.read_disabled():
            self._store.publish(self._block)

    def work(self, _fact: str, _now: int, values: Mapping[str, Any]) -> None:
        """The user set the ``tokens`` or ``samples`` of a step, or both."""
        block, steps = self._block, self._store.steps()
        for unit in ("tokens", "samples"):
            per_step, before = AT[f"{unit}_per_step"], AT[f"{unit}_before"]
            if block[per_step]:
                done = block[before] + (steps - block[AT["worth_since"]]) * block[per_step]
            else:  # reported late, it also applies to earlier steps
                done = steps * values.get(unit, 0)
            block[before] = min(done, _LARGEST)
            block[per_step] = values.get(unit, block[per_step])
        block[AT["worth_since"]] = steps
        self._store.publish(block)

    def exit(self, end: End, now: int) -> None:
        if self._block[AT["end_code"]]:
            return  # a spawned child comes here when multiprocessing ends it, and again at exit
        self._state.read_memory(now)
        self._state.read_disabled()
        self._block[AT["end_code"]] = record.ENDS.index(end.how)
        self._block[AT["exit_code"]] = 0 if end.code is None else 1 + end.code
        self._block[AT["ended_ns"]] = now
        self._store.publish(self._block)
        ended = {"how": end.how, "exception": end.exception, "code": end.code}
        if end.refusal:
            ended["refusal"] = end.refusal
        ended.update(end.place or {}, steps=self._store.steps())
        self._store.note("exit", now, ended, essential=True)
