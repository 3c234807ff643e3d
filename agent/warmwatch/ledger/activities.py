"""Compile activity: what each thread compiles, in which phase, and its progress.

Begin and end events form a stack for each thread. A phase's time belongs to the innermost event of
the thread that has been compiling longest. :class:`warmwatch.ledger.ledger.Ledger` calls this code
from one thread at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from warmwatch.hooks.phases import is_preparation, phase_of
from warmwatch.ledger.counters import CounterStore, PytorchState
from warmwatch.shared import record
from warmwatch.shared.record import COMPILE_INDEX as AT
from warmwatch.shared.record import PHASES

_PHASE, _ACCOUNTED, _PHASE_NS = AT["active_phase"], AT["accounted_ns"], AT["phase_ns"]
_SINCE = AT["active_since_ns"]
_OTHER = PHASES.index("other")
_WARM_UP_GAPS = 4  # times `quiet_ns`: a longer gap separates two warm-ups
_Stack = list[tuple[str, int]]  # events with their phases, the innermost last


class Activities:
    """Open activities of each thread, and the counters that follow from them."""

    def __init__(self, counters: CounterStore, state: PytorchState) -> None:
        self._counters, self._words, self._store = counters, counters.words, counters.store
        self._state = state
        # In the order of the threads' begins: the first has been compiling longest.
        self._stacks: dict[int, _Stack] = {}
        self._background: dict[int, _Stack] = {}  # stacks that a step has passed
        self._background_since: dict[int, int] = {}
        self._thread_ended = False  # whether the activity in progress has ended on one thread
        self._opened_episode = False  # the activity in progress reopened a warm rank

    def begin(self, thread: int, event: str, now: int, of: Mapping[str, Any]) -> None:
        words = self._words
        stack = self._background.get(thread) or self._stacks.get(thread)
        if stack is None:
            if is_preparation(event):
                return
            if not self._stacks:
                self._gap(now)
                self._thread_ended = False
                words[_SINCE] = now  # before the count: see ``look_closely`` in ``steps.py``
                words[AT["begun"]] += 1
                self._counters.on_begin()  # after the count, so that the callback sees it
                words[AT["first_begin_ns"]] = words[AT["first_begin_ns"]] or now
                self._opened_episode = not words[AT["episode_began_ns"]]
                if self._opened_episode:
                    words[AT["episode_began_ns"]] = now
                    words[AT["episode_began_steps"]] = self._store.steps()
                if self._background:
                    self._state.at_end(now)  # counters that rose so far belong to that compilation
                else:
                    self._state.at_begin()
                values = {"activity": words[AT["begun"]], "what": event}
                self._store.note("begin", now, {**values, "steps": self._store.steps(), **of})
            stack = self._stacks.setdefault(thread, [])
        phase = phase_of(event)
        if phase is None:
            phase = stack[-1][1] if stack else _OTHER
        stack.append((event, phase))
        if self._account(now):
            self._store.publish(words, renew_lock=False)

    def end(self, thread: int, event: str, now: int) -> None:
        stack = self._background.get(thread) or self._stacks.get(thread) or []
        if stack and stack[-1][0] == event:
            stack.pop()
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
        """A step was marked: ``threads`` compile no more; others compile in the background."""
        for thread in threads:
            self._thread_ended |= self._stacks.pop(thread, None) is not None
            self._background.pop(thread, None)
        passed, self._stacks = self._stacks, {}
        self._background.update(passed)
        if passed:
            since = self._words[_SINCE]
            self._background_since.update(
                {thread: since for thread in passed if thread not in self._background_since}
            )
        changed = self._account(now)
        if passed:
            self._step_passed(now)
        self._ended(now, changed=changed)

    def _step_passed(self, now: int) -> None:
        """The activity in progress continues in the background: no step waits for it."""
        words = self._words
        words[AT["background_since_ns"]] = min(self._background_since.values())
        if self._thread_ended:
            return  # a part of it ended in this step, which may have waited for it
        words[AT["background"]] += 1
        words[AT["ended"]] = words[AT["begun"]]
        self._nothing_active()
        if self._opened_episode:
            words[AT["episode_began_ns"]] = words[AT["episode_began_steps"]] = 0
        values = {"activity": words[AT["begun"]], "background": True}
        self._store.note("end", now, {**values, "phase_ns": self._phase_ns()})

    def _ended(self, now: int, *, changed: bool) -> None:
        """Something ended, or was abandoned: perhaps everything in progress.

        ``changed``: the current phase changed.
        """
        words = self._words
        if self._background_since:
            self._background_ended(now)
        if words[_SINCE] and not self._stacks:
            words[AT["ended"]] = words[AT["begun"]]
            took = now - words[_SINCE]
            words[AT["longest_activity_ns"]] = max(words[AT["longest_activity_ns"]], took)
            self._nothing_active()
            words[AT["last_end_ns"]] = now
            self._state.at_end(now)
            values = {"activity": words[AT["begun"]], "phase_ns": self._phase_ns()}
            self._store.note("end", now, values)
        if changed:
            self._store.publish(words, renew_lock=False)

    def _background_ended(self, now: int) -> None:
        """Account for the background compilations that have ended."""
        words = self._words
        over = [thread for thread in self._background_since if thread not in self._background]
        if not over:
            return
        for thread in over:
            since = self._background_since.pop(thread)
            words[AT["background_ns"]] += max(0, now - since)
            self._store.note("background", now, {"seconds": (now - since) / 1e9})
        words[AT["background_since_ns"]] = min(self._background_since.values(), default=0)
        words[AT["background_ended_ns"]] = now
        self._state.at_end(now)
        self._store.publish(words)

    def progress(self, of: str, done: int, total: int) -> None:
        words, under_way = self._words, done < total and bool(self._stacks)
        words[AT["progress_of"]] = (1 + record.PROGRESS.index(of)) * under_way
        words[AT["progress_done"]] = done * under_way
        words[AT["progress_total"]] = total * under_way
        self._store.publish(words)

    def _nothing_active(self) -> None:
        for name in ("active_since_ns", "progress_of", "progress_done", "progress_total"):
            self._words[AT[name]] = 0

    def _gap(self, now: int) -> None:
        """Count the time since the last activity, if it may be part of the same warm-up."""
        words = self._words
        gap = now - words[AT["last_end_ns"]] if words[AT["last_end_ns"]] else 0
        if words[AT["longest_gap_ns"]] < gap <= _WARM_UP_GAPS * words[AT["quiet_ns"]]:
            words[AT["longest_gap_ns"]] = gap

    def _account(self, now: int) -> bool:
        """Account the time since the last change to the phase that was current.

        Returns whether the current phase is another one now.
        """
        words = self._words
        current = 0
        for stack in self._stacks.values():
            current = stack[-1][1] + 1
            break
        before = words[_PHASE]
        if current == before:
            return False
        if before:
            words[_PHASE_NS + before - 1] += max(0, now - words[_ACCOUNTED])
        words[_PHASE], words[_ACCOUNTED] = current, now
        return True

    # For other threads.

    def threads(self) -> tuple[int, ...]:
        """The threads with open activities; may be called on any thread."""
        return (*tuple(self._stacks), *tuple(self._background))

    def gone(self, living: Collection[int]) -> list[int]:
        """The threads with open activities that are not among the ``living``."""
        return [thread for thread in self.threads() if thread not in living]

    def total_ns(self) -> int:
        """Compile time accounted so far, in nanoseconds."""
        return sum(self._words[_PHASE_NS : _PHASE_NS + len(PHASES)])

    def phases_at(self, now: int) -> list[int]:
        """Time of each of PHASES up to ``now``, including the current one."""
        words = self._words
        times = list(words[_PHASE_NS : _PHASE_NS + len(PHASES)])
        if words[_PHASE]:
            times[words[_PHASE] - 1] += max(0, now - words[_ACCOUNTED])
        return times

    def _phase_ns(self) -> dict[str, int]:
        """Accounted time of each phase, without zeros."""
        times = self._words[_PHASE_NS : _PHASE_NS + len(PHASES)]
        return {name: ns for name, ns in zip(PHASES, times, strict=True) if ns}
