"""Facts of irregular steps, warm-ups and long steps (regular steps report none), and of what the
program does: its calls of ``torch.compile``, its optimizers, the work of a step, its end.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from warmwatch.hooks.training.notebook_cells import shell
from warmwatch.ledger.counters import CounterStore, FirstStep, PytorchState, paused_ns
from warmwatch.ledger.pauses import Pausing, training_thread
from warmwatch.process.ending import End
from warmwatch.process.threads import SerialQueue
from warmwatch.shared import record
from warmwatch.shared.record import COMPILE_INDEX as AT
from warmwatch.steps.attribution import LeftOut

if TYPE_CHECKING:
    from warmwatch.steps.batches import Behind


class StepFacts:
    """Facts of steps, and their handlers: the first step, steps with activity, long steps, and the
    step that makes the rank warm. ``steps.StepMarks`` documents the methods; ``queue`` belongs to
    the ledger.
    """

    def __init__(
        self,
        counters: CounterStore,
        state: PytorchState,
        pausing: Pausing,
        first_step: FirstStep,
        queue: SerialQueue,
    ) -> None:
        self._block, self._store, self._state = counters.block, counters.store, state
        self._queue, self._pausing, self._first_step = queue, pausing, first_step
        self._left_out = LeftOut()

    def first_began(self) -> int:
        return self._first_step.began_ns

    def resumed(self, now: int, last: int, duration: int) -> int:
        """The length of a clean step that is not the first, without its pauses.

        ``now``: its mark; ``last``: the previous mark; ``duration``: the time between them.
        """
        without = duration - min(duration, self._pausing.length_since(last))
        if without != duration:
            self._queue.post(self._pausing.resumed, now, last, without)
        return without

    def step(
        self,
        steps: int,
        now: int,
        duration: int,
        *,
        rest: int,
        seen: int,
        touched: bool,
        baseline: bool = False,
    ) -> tuple[int, int]:
        """An irregular step was marked: the first one, one with activity, or a ``baseline``'s.

        ``seen``: the number of activities begun by then. ``touched``: some were within this step,
        which took ``rest`` nanoseconds without them. Returns ``duration`` and ``rest`` without
        pauses.
        """
        before, whole = now - duration if steps > 1 else 0, rest
        # a gap with an explanation does not measure a stall; compile time inside a pause is
        # subtracted twice, so only what is left of ``rest`` counts
        rest = max(0, rest - self._pausing.length_since(before))
        duration -= whole - rest
        self._pausing.training = training_thread()
        self._queue.post(
            lambda: self._irregular(
                *(steps, now, before),
                duration=duration,
                rest=rest,
                seen=seen,
                touched=touched,
                baseline=baseline,
            )
        )
        return duration, rest

    def passed(self, seen: int) -> None:
        self._queue.post(self._passed, seen)

    def held_up(self, before: int, steps: int) -> None:
        self._queue.post(self._held_up, before, steps)

    def long_step(
        self, steps: int, now: int, duration: int, usual: int, behind: Behind | None
    ) -> None:
        """A clean step took far longer than usual; ``behind``: the batches within it."""
        values = {"n": steps, "seconds": duration / 1e9, "usual": usual / 1e9}
        if behind is not None:
            values["data"] = behind.wait_ns / 1e9
            values["batches"] = behind.batches
            values["batches_before"] = behind.all_batches - behind.batches
        self._queue.post(self._long, now, values)

    def slow(self, now: int) -> None:
        self._queue.post(self._slow, now)

    def warm(self, now: int, steps: int) -> None:
        self._queue.post(self._warm, now, steps)

    # Handlers, in the queue.

    def _irregular(
        self,
        steps: int,
        now: int,
        before: int,
        *,
        duration: int,
        rest: int,
        seen: int,
        touched: bool,
        baseline: bool,
    ) -> None:
        """The irregular step number ``steps`` ended at ``now``; the one before it, if any, at
        ``before``.
        """
        block = self._block
        block[AT["clean_sum_ns"]] += max(0, before - block[AT["irregular_step_ns"]])
        block[AT["irregular_step_ns"]] = max(block[AT["irregular_step_ns"]], now)
        block[AT["activities_seen"]] = seen
        memory = dict(zip(record.MEMORY, self._state.read_memory(now), strict=False))
        if memory and not before:
            self._store.note("first_step", now, memory)
        self._state.read_disabled()
        self._state.read_precompiled()
        self._state.count_skips()
        if touched:
            block[AT["compile_step_sum_ns"]] += duration
            recent = slice(AT["touched_steps"], AT["touched_steps"] + record.MOST_TOUCHED)
            block[recent] = array("Q", [steps, *block[recent]][: record.MOST_TOUCHED])
        if touched or baseline:
            block[AT["clean_after"]] = max(block[AT["clean_after"]], steps)
            block[AT["clean_sum_before_ns"]] = block[AT["clean_sum_ns"]]
            block[AT["waited_before_ns"]] = self._store.waited_ns()
            block[AT["longest_rest_ns"]] = max(block[AT["longest_rest_ns"]], rest)
        if steps == 1:
            self._first(now, duration, baseline=baseline)
        self._store.publish(block)
        if touched or steps == 1:
            clean = not (touched or baseline)
            values = {"n": steps, "seconds": duration / 1e9 if duration else None, "clean": clean}
            self._store.note("step", now, values)

    def _first(self, now: int, duration: int, *, baseline: bool) -> None:
        block = self._block
        block[AT["first_step_ns"]] = now
        block[AT["first_duration_ns"]] = duration
        if not block[AT["begun"]]:
            block[AT["paused_before_ns"]] = paused_ns(block, now)
        settled = block[AT["settled"]] == block[AT["begun"]] + 1
        if not baseline and not settled:  # the warm-up begins after a baseline
            block[AT["episode_began_ns"]] = block[AT["episode_began_ns"]] or now

    def _passed(self, seen: int) -> None:
        self._block[AT["activities_seen"]] = seen
        self._store.publish(self._block)

    def _held_up(self, before: int, steps: int) -> None:
        block = self._block
        block[AT["last_end_ns"]] = max(block[AT["last_end_ns"]], block[AT["background_ended_ns"]])
        if not block[AT["episode_began_ns"]]:
            block[AT["episode_began_ns"]] = before
            block[AT["episode_began_steps"]] = steps

    def _long(self, now: int, values: dict[str, float]) -> None:
        left_out = self._left_out.before(now)
        if left_out is not None:
            took = self._pausing.behind(int(values["n"]) - 1)
            parts = {what: min(ns / 1e9, values["seconds"]) for what, ns in took.items()}
            # between two inputs it waits, which Python, unlike IPython, reports to nobody
            if hasattr(sys, "ps1") and shell() is None:
                values["prompt"] = True
            self._store.note("long_step", now, {**values, **parts, "left_out": left_out})

    def _slow(self, now: int) -> None:
        """Record what may explain a slow step."""
        if self._state.read_memory(now):
            self._store.publish(self._block)

    def _warm(self, now: int, steps: int) -> None:
        block = self._block
        self._state.read_memory(now)
        self._state.read_precompiled()
        if block[AT["asynchronous"]]:
            return  # it may still compile in the background
        if block[AT["active_since_ns"]] or block[AT["activities_seen"]] != block[AT["begun"]]:
            return  # another thread began something after the mark
        self._end_warmup(now, steps, block[AT["last_end_ns"]])

    def settled(self, _fact: str, now: int, values: Mapping[str, Any]) -> None:
        """The warm-up ends without steps; ``by``: one of SETTLED_BY.

        ``at``, ``activities``: the time of that judgement, and the count then. If more have begun
        since, the warm-up goes on.
        """
        block, by, activities = self._block, values["by"], values.get("activities")
        now = values.get("at") or now
        active = block[AT["active_since_ns"]]
        if activities is not None and (active or block[AT["begun"]] != activities):
            return
        self._state.read_precompiled()
        block[AT["settled"]] = 1 + block[AT["begun"]]
        block[AT["settled_ns"]] = now
        block[AT["settled_by"]] = record.SETTLED_BY.index(by)
        self._end_warmup(now, self._store.steps(), now if active else block[AT["last_end_ns"]], by)

    def _end_warmup(self, now: int, steps: int, ended: int, by: str | None = None) -> None:
        """Record the end of the open warm-up, if any; ``by``: see :meth:`settled`."""
        block = self._block
        began, before = block[AT["episode_began_ns"]], block[AT["episode_began_steps"]]
        block[AT["episode_began_ns"]] = block[AT["episode_began_steps"]] = 0
        how = {} if by is None else {"by": by}
        if not block[AT["begun"]]:  # eager: there was no warm-up
            self._state.read_disabled()
            self._store.publish(block)
            self._store.note("eager", now, {"at": self._store.steps(), **how}, essential=True)
            return
        if not began:  # it had ended already, and nothing has compiled since
            self._store.publish(block)
            return
        block[AT["warmups"]] += 1
        # if all activity is in the background, there was nothing to wait for
        warmup = array("Q", [began, ended or began, now, steps - before])
        for name in ("last_warmup", "first_warmup")[: 2 if block[AT["warmups"]] == 1 else 1]:
            block[AT[name] : AT[name] + len(warmup)] = warmup
        self._store.publish(block)
        span = {"began": began, "ended": ended, "steps": steps - before}
        self._store.note("warm", now, {"at": self._store.steps(), **span, **how}, essential=True)


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
