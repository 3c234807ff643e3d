"""Compile activity: what each thread compiles, in which phase, and its progress.

Begin and end events form a stack for each thread. A phase's time belongs to the innermost event of
the thread that has been compiling longest. :class:`warmwatch.ledger.ledger.Ledger` calls this code
from one thread at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from warmwatch.hooks.phases import is_preparation, phase_of
from warmwatch.ledger.counters import CounterStore, FirstStep, PytorchState, paused_ns
from warmwatch.shared import record
from warmwatch.shared.record import COMPILE_INDEX as AT
from warmwatch.shared.record import PHASES

_PHASE, _ACCOUNTED, _PHASE_NS = AT["active_phase"], AT["accounted_ns"], AT["phase_ns"]
_SINCE = AT["active_since_ns"]
_OTHER = PHASES.index("other")
_WARM_UP_GAPS = 4  # times `quiet_ns`: a longer gap separates two warm-ups
# The longest pause within "compiling for" of a process without steps, such as a server. A forward
# takes 5 to 76 ms between its own compilation and that of its backward; requests may take minutes.
_SHORT_PAUSE_NS = 10**9
# What ends a stretch of compiling, besides a step: other cells of a notebook, and the end of a
# warm-up without steps. An evaluation does not: its end would set the time back to nothing while
# no step has been made.
_MARKS = ("between_cells_until_ns", "settled")
_Stack = list[tuple[str, int]]  # events with their phases, the innermost last


class Activities:
    """Open activities of each thread, and the counters that follow from them.

    Attributes:
        first_thread: the thread of the first one.
    """

    def __init__(self, counters: CounterStore, state: PytorchState, first_step: FirstStep) -> None:
        self._counters, self._block, self._store = counters, counters.block, counters.store
        self._state, self._first_step = state, first_step
        # In the order of the threads' begins: the first has been compiling longest.
        self._stacks: dict[int, _Stack] = {}
        self._background: dict[int, _Stack] = {}  # stacks that a step has passed
        self._background_since: dict[int, int] = {}
        self.first_thread: int | None = None
        self._thread_ended = False  # whether the activity in progress has ended on one thread
        self._opened_episode = False  # the activity in progress reopened a warm rank
        self._paused = 0  # time of pauses when the last activity ended
        self._mark: tuple[int, ...] = ()  # of the last step before this stretch

    def begin(self, thread: int, event: str, now: int, target: Mapping[str, Any]) -> None:
        block = self._block
        if block[AT["end_code"]]:
            return  # a thread of the compiler goes on after the end
        stack = self._background.get(thread) or self._stacks.get(thread)
        if stack is None:
            if is_preparation(event):
                return
            if not self._stacks:
                self._gap(now)
                self.first_thread = self.first_thread or thread
                self._thread_ended = False
                block[_SINCE] = now  # before the count: see ``judge_irregular`` in ``steps.py``
                block[AT["begun"]] += 1
                self._counters.on_begin()  # after the count, so that the callback sees it
                self._continue_or_begin(now)
                block[AT["first_begin_ns"]] = block[AT["first_begin_ns"]] or now
                self._first_step.activity_began(now)
                self._opened_episode = not block[AT["episode_began_ns"]]
                if self._opened_episode:
                    block[AT["episode_began_ns"]] = now
                    block[AT["episode_began_steps"]] = self._store.steps()
                if self._background:
                    self._state.at_end(now)  # counters that rose so far belong to that compilation
                else:
                    self._state.at_begin()
                values = {"activity": block[AT["begun"]], "what": event}
                self._store.note("begin", now, {**values, "steps": self._store.steps(), **target})
                target = {}
            stack = self._stacks.setdefault(thread, [])
        if "id" in target and stack is not self._background.get(thread):  # within an activity
            self._store.note("target", now, {"what": event, "steps": self._store.steps(), **target})
        name, around = stack[-1] if stack else (None, None)
        phase = phase_of(event, name)
        if phase is None:
            phase = _OTHER if around is None else around
        stack.append((event, phase))
        if phase != around and self._account(now):
            self._store.publish(block, renew_lock=False)

    def _continue_or_begin(self, now: int) -> None:
        """Continue the present stretch of compiling; begin one if a step ended it.

        Other ranks may compile in a pause of this one, so pauses do not end it: only where no step
        is to be expected does a long one.
        """
        block = self._block
        mark = self._store.steps(), *(block[AT[name]] for name in _MARKS)
        steps = mark[0] or block[AT["optimizers"]]
        paused = not steps and now - block[AT["last_end_ns"]] > _SHORT_PAUSE_NS
        if paused or mark != self._mark:
            self._mark = mark
            block[AT["compiling_since_ns"]] = now
            block[AT["compiling_before_ns"]] = self.total_ns()

    def end(self, thread: int, event: str, now: int) -> None:
        if self._block[AT["end_code"]]:
            return
        stack = self._background.get(thread) or self._stacks.get(thread) or []
        if stack and stack[-1][0] == event:
            _, phase = stack.pop()
            if stack and stack[-1][1] == phase:
                return  # most events are of the phase of the event around them
        elif any(name == event for name, _ in stack):
            while stack.pop()[0] != event:  # nested activities have ended too
                pass
        else:
            thread = self._end_elsewhere(event)
        if not self._stacks.get(thread, True):
            del self._stacks[thread]
            self._thread_ended = True
        if not self._background.get(thread, True):
            del self._background[thread]
        self._ended(now, changed=self._account(now))

    def _end_elsewhere(self, event: str) -> int:
        """End ``event`` on the thread that began it; return that thread, or 0.

        If several have it open, the one that has been compiling longest: each end closes one, so
        none stays open. Activities nested in it go on.
        """
        for thread, stack in (*self._stacks.items(), *self._background.items()):
            places = [at for at, (name, _) in enumerate(stack) if name == event]
            if places:
                del stack[places[-1]]
                return thread
        return 0  # the agent attached during it

    def abandoned(self, threads: Collection[int], now: int) -> None:
        """A step was marked: ``threads`` no longer compile; others compile in the background."""
        for thread in threads:
            self._thread_ended |= self._stacks.pop(thread, None) is not None
            self._background.pop(thread, None)
        passed, self._stacks = self._stacks, {}
        self._background.update(passed)
        if passed:
            since = self._block[_SINCE]
            self._background_since.update(
                {thread: since for thread in passed if thread not in self._background_since}
            )
        changed = self._account(now)
        if passed:
            self._step_passed(now)
        self._ended(now, changed=changed)

    def _step_passed(self, now: int) -> None:
        """The activity in progress continues in the background: no step waits for it."""
        block = self._block
        block[AT["background_since_ns"]] = min(self._background_since.values())
        if self._thread_ended:
            return  # a part of it ended in this step, which may have waited for it
        block[AT["background"]] += 1
        block[AT["ended"]] = block[AT["begun"]]
        self._nothing_active(now)
        if self._opened_episode:
            block[AT["episode_began_ns"]] = block[AT["episode_began_steps"]] = 0
        values = {"activity": block[AT["begun"]], "background": True}
        self._store.note("end", now, {**values, "phase_ns": self._phase_ns()})

    def _ended(self, now: int, *, changed: bool) -> None:
        """Something ended, or was abandoned: perhaps everything in progress.

        ``changed``: the current phase changed.
        """
        block = self._block
        if self._background_since:
            self._background_ended(now)
        if block[_SINCE] and not self._stacks:
            block[AT["ended"]] = block[AT["begun"]]
            took = now - block[_SINCE]
            block[AT["longest_activity_ns"]] = max(block[AT["longest_activity_ns"]], took)
            self._nothing_active(now)
            block[AT["last_end_ns"]] = now
            self._state.at_end(now)
            values = {"activity": block[AT["begun"]], "phase_ns": self._phase_ns()}
            self._store.note("end", now, values)
        if changed:
            self._store.publish(block, renew_lock=False)

    def _background_ended(self, now: int) -> None:
        """Account for the background compilations that have ended."""
        block = self._block
        over = [thread for thread in self._background_since if thread not in self._background]
        if not over:
            return
        for thread in over:
            since = self._background_since.pop(thread)
            block[AT["background_ns"]] += max(0, now - since)
            self._store.note("background", now, {"seconds": (now - since) / 1e9})
        block[AT["background_since_ns"]] = min(self._background_since.values(), default=0)
        block[AT["background_ended_ns"]] = now
        self._state.at_end(now)
        self._store.publish(block)

    def progress(self, _fact: str, _now: int, values: Mapping[str, Any]) -> None:
        """The activity in progress has done some of its items; its end clears that."""
        subject, done, total = values["subject"], values["done"], values["total"]
        block, under_way = self._block, done < total and bool(self._stacks)
        block[AT["progress_of"]] = (1 + record.PROGRESS.index(subject)) * under_way
        block[AT["progress_done"]] = done * under_way
        block[AT["progress_total"]] = total * under_way
        self._store.publish(block)

    def _nothing_active(self, now: int) -> None:
        self._paused = paused_ns(self._block, now)
        for name in ("active_since_ns", "progress_of", "progress_done", "progress_total"):
            self._block[AT[name]] = 0

    def _gap(self, now: int) -> None:
        """Count the time since the last activity, if it may be part of the same warm-up, and the
        pauses in it.
        """
        block = self._block
        if not block[AT["begun"]]:
            block[AT["paused_before_ns"]] = paused_ns(block, now)
        elif not block[AT["warmups"]]:
            block[AT["paused_warmup_ns"]] += max(0, paused_ns(block, now) - self._paused)
        gap = now - block[AT["last_end_ns"]] if block[AT["last_end_ns"]] else 0
        if block[AT["longest_gap_ns"]] < gap <= _WARM_UP_GAPS * block[AT["quiet_ns"]]:
            block[AT["longest_gap_ns"]] = gap

    def _account(self, now: int) -> bool:
        """Account the time since the last change to the phase that was current.

        Returns whether the current phase is another one now.
        """
        block = self._block
        current = 0
        for stack in self._stacks.values():
            current = stack[-1][1] + 1
            break
        before = block[_PHASE]
        if current == before:
            return False
        if before:
            block[_PHASE_NS + before - 1] += max(0, now - block[_ACCOUNTED])
        block[_PHASE], block[_ACCOUNTED] = current, now
        return True

    # For other threads.

    def threads(self) -> tuple[int, ...]:
        """The threads with open activities; may be called on any thread."""
        return (*tuple(self._stacks), *tuple(self._background))

    def total_ns(self) -> int:
        """Compile time accounted so far, in nanoseconds."""
        return sum(self._block[_PHASE_NS : _PHASE_NS + len(PHASES)])

    def phases_at(self, now: int) -> list[int]:
        """Time of each of PHASES up to ``now``, including the current one."""
        block = self._block
        times = list(block[_PHASE_NS : _PHASE_NS + len(PHASES)])
        if block[_PHASE]:
            times[block[_PHASE] - 1] += max(0, now - block[_ACCOUNTED])
        return times

    def _phase_ns(self) -> dict[str, int]:
        """Accounted time of each phase, without zeros."""
        times = self._block[_PHASE_NS : _PHASE_NS + len(PHASES)]
        return {name: ns for name, ns in zip(PHASES, times, strict=True) if ns}
