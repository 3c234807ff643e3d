"""Compile activity: what is being compiled, in which phase, and its progress.

Begin and end events form a stack for each thread. A phase's time belongs to the innermost event.
:class:`warmwatch.ledger.ledger.Ledger` calls this code from one thread at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from warmwatch.hooks.phases import is_preparation, phase_of
from warmwatch.ledger.compile_calls import Functions
from warmwatch.ledger.counters import Answers, CounterStore
from warmwatch.shared import record
from warmwatch.shared.record import COMPILE_INDEX, PHASES
from warmwatch.shared.record import COMPILE_INDEX as AT

_PHASE = COMPILE_INDEX["active_phase"]
_ACCOUNTED = COMPILE_INDEX["accounted_ns"]
_PHASE_NS = COMPILE_INDEX["phase_ns"]
_OTHER = PHASES.index("other")


class Activity:
    """The stacks, and the phase words of the rare block that follow from them."""

    def __init__(self, words: list[int]) -> None:
        self._words = words
        # in the order in which the threads began: the first has been at it longest
        self._stacks: dict[int, list[tuple[str, int]]] = {}
        self._background: dict[int, list[tuple[str, int]]] = {}  # stacks that a step has passed
        self._phases: dict[str, int | None] = {}
        self._waited = False  # whether a stack has ended since the training was last seen free

    def __bool__(self) -> bool:
        """Whether any thread is compiling that the training may wait for."""
        return bool(self._stacks)

    @property
    def in_background(self) -> bool:
        """Whether any thread compiles in the background."""
        return bool(self._background)

    @property
    def waited(self) -> bool:
        """Whether the activity in progress has ended on one thread at least.

        The training may have waited for that part, even where another thread goes on.
        """
        return self._waited

    def holds(self, thread: int) -> bool:
        """Whether ``thread`` has begun something that it has not ended."""
        return thread in self._stacks or thread in self._background

    def begin(self, thread: int, event: str, now: int) -> bool:
        """Enter an event; whether the current phase changed."""
        if not self._stacks:
            self._waited = False
        stack = self._background.get(thread)
        if stack is None:
            stack = self._stacks.setdefault(thread, [])
        phase = self._phase(event)
        if phase is None:
            phase = stack[-1][1] if stack else _OTHER
        stack.append((event, phase))
        return self._account(now)

    def end(self, thread: int, event: str, now: int) -> bool:
        """Leave an event and what was begun inside it; whether the current phase changed."""
        stack = self._background.get(thread) or self._stacks.get(thread, [])
        if any(name == event for name, _ in stack):
            while stack.pop()[0] != event:
                pass
        else:
            thread = self._end_elsewhere(event)
        if not self._stacks.get(thread, True):
            del self._stacks[thread]
            self._waited = True
        if not self._background.get(thread, True):
            del self._background[thread]
        return self._account(now)

    def _end_elsewhere(self, event: str) -> int:
        """Leave ``event`` where another thread began it; that thread, or 0.

        Where several have it open, the one that has been compiling longest: which of them is all
        the same, since each end ends one, and none stays open. What was begun inside it goes on,
        for that thread itself is still at it.
        """
        for thread, stack in (*self._stacks.items(), *self._background.items()):
            places = [at for at, (name, _) in enumerate(stack) if name == event]
            if places:
                del stack[places[-1]]
                return thread
        return 0  # we were attached in the middle of it

    def abandon(self, threads: Collection[int], now: int) -> bool:
        """Leave everything that ``threads`` have begun."""
        for thread in threads:
            self._waited |= self._stacks.pop(thread, None) is not None
            self._background.pop(thread, None)
        return self._account(now)

    def step_passed(self, threads: Collection[int], now: int) -> bool:
        """A step is complete while ``threads`` compile: they do so in the background."""
        for thread in threads:
            if (stack := self._stacks.pop(thread, None)) is not None:
                self._background[thread] = stack
        return self._account(now)

    def threads(self) -> tuple[int, ...]:
        """Those that have begun something; may be asked on any thread."""
        return (*tuple(self._stacks), *tuple(self._background))

    def gone(self, living: Collection[int]) -> list[int]:
        """The threads that have begun something and are not among the ``living``."""
        return [thread for thread in self.threads() if thread not in living]

    def total_ns(self) -> int:
        """Compile time accounted so far, in nanoseconds."""
        return sum(self._words[_PHASE_NS : _PHASE_NS + len(PHASES)])

    def phases_at(self, now: int) -> list[int]:
        """Time of each of PHASES up to ``now``, that of the current one included."""
        words = self._words
        times = words[_PHASE_NS : _PHASE_NS + len(PHASES)]
        if words[_PHASE]:
            times[words[_PHASE] - 1] += max(0, now - words[_ACCOUNTED])
        return times

    def phase_ns(self) -> dict[str, int]:
        """Accounted time of each phase that has any."""
        times = self._words[_PHASE_NS : _PHASE_NS + len(PHASES)]
        return {name: ns for name, ns in zip(PHASES, times, strict=True) if ns}

    def _phase(self, event: str) -> int | None:
        if event not in self._phases:
            self._phases[event] = phase_of(event)
        return self._phases[event]

    def _account(self, now: int) -> bool:
        """Give the time since the last change to the phase that was current; take the new one."""
        words = self._words
        oldest = next(iter(self._stacks.values()), None)
        current = oldest[-1][1] + 1 if oldest else 0
        if current == words[_PHASE]:
            return False
        if words[_PHASE]:
            words[_PHASE_NS + words[_PHASE] - 1] += max(0, now - words[_ACCOUNTED])
        words[_PHASE], words[_ACCOUNTED] = current, now
        return True


_WARM_UP_GAPS = 4  # times `quiet_ns`: a longer time without activity is not within one warm-up


class Activities:
    """What threads have begun and ended.

    Attributes:
        activity: what is being compiled right now.
    """

    def __init__(self, book: CounterStore, answers: Answers, functions: Functions) -> None:
        self._book, self._words, self._store = book, book.words, book.store
        self._answers, self._functions = answers, functions
        self.activity = Activity(book.words)
        self._opened_episode = False  # the activity in progress reopened a warm rank
        self._background: dict[int, int] = {}  # thread -> since when it compiles in the background

    def begin(self, thread: int, event: str, now: int, of: Mapping[str, Any]) -> None:
        words = self._words
        self._functions.begun(of)
        if is_preparation(event) and not self.activity.holds(thread):
            return
        if thread in self._background:
            self.activity.begin(thread, event, now)
            return
        if not self.activity:
            self._gap(now)
            words[AT["active_since_ns"]] = now  # before the count: see ``_steps.look_closely``
            words[AT["begun"]] += 1
            self._book.on_begin()  # after the count: who is called by it finds it
            words[AT["first_begin_ns"]] = words[AT["first_begin_ns"]] or now
            self._opened_episode = not words[AT["episode_began_ns"]]
            if self._opened_episode:
                words[AT["episode_began_ns"]] = now
                words[AT["episode_began_steps"]] = self._store.steps()
            if self.activity.in_background:
                self._answers.at_end(now)  # what rose so far belongs to that compilation
            else:
                self._answers.at_begin()
            values = {"activity": words[AT["begun"]], "what": event, "steps": self._store.steps()}
            self._store.note("begin", now, {**values, **of})
        if self.activity.begin(thread, event, now):
            self._store.publish(words)

    def _gap(self, now: int) -> None:
        """The time since the last activity, as long as it may be part of one warm-up."""
        words = self._words
        gap = now - words[AT["last_end_ns"]] if words[AT["last_end_ns"]] else 0
        if words[AT["longest_gap_ns"]] < gap <= _WARM_UP_GAPS * words[AT["quiet_ns"]]:
            words[AT["longest_gap_ns"]] = gap

    def end(self, thread: int, event: str, now: int) -> None:
        changed = self.activity.end(thread, event, now)
        self._background_ended(now)
        self._changed(changed, now)

    def abandoned(self, threads: Collection[int], now: int) -> None:
        """A step was marked: ``threads`` compile no longer, and others in the background."""
        changed = self.activity.abandon(threads, now)
        self._background_ended(now)
        if self.activity:
            since = self._words[AT["active_since_ns"]]
            passed = self.activity.threads()
            changed = self.activity.step_passed(passed, now) or changed
            self._background.update({t: since for t in passed if t not in self._background})
            self._step_passed(now)
        self._changed(changed, now)

    def _step_passed(self, now: int) -> None:
        """The activity in progress goes on in the background: the training does not wait for it."""
        words = self._words
        words[AT["background_since_ns"]] = min(self._background.values())
        if self.activity.waited:
            return  # a part of it has ended within this step, which may have waited for that part
        words[AT["background"]] += 1
        words[AT["ended"]] = words[AT["begun"]]
        for name in ("active_since_ns", "progress_of", "progress_done", "progress_total"):
            words[AT[name]] = 0
        if self._opened_episode:
            words[AT["episode_began_ns"]] = words[AT["episode_began_steps"]] = 0
        values = {"activity": words[AT["begun"]], "background": True}
        self._store.note("end", now, {**values, "phase_ns": self.activity.phase_ns()})

    def _background_ended(self, now: int) -> None:
        """Account for the compilations in the background that have ended."""
        over = [t for t in self._background if not self.activity.holds(t)]
        if not over:
            return
        words = self._words
        for thread in over:
            since = self._background.pop(thread)
            words[AT["background_ns"]] += max(0, now - since)
            self._store.note("background", now, {"seconds": (now - since) / 1e9})
        words[AT["background_since_ns"]] = min(self._background.values(), default=0)
        words[AT["background_ended_ns"]] = now
        self._answers.at_end(now)
        self._store.publish(words)

    def _changed(self, changed: bool, now: int) -> None:
        """Something was ended, or abandoned; ``changed``: the current phase did."""
        words = self._words
        if words[AT["active_since_ns"]] and not self.activity:
            words[AT["ended"]] = words[AT["begun"]]
            took = now - words[AT["active_since_ns"]]
            words[AT["longest_activity_ns"]] = max(words[AT["longest_activity_ns"]], took)
            for name in ("active_since_ns", "progress_of", "progress_done", "progress_total"):
                words[AT[name]] = 0
            words[AT["last_end_ns"]] = now
            self._answers.at_end(now)
            phases = self.activity.phase_ns()
            self._store.note("end", now, {"activity": words[AT["begun"]], "phase_ns": phases})
        if changed:
            self._store.publish(words)

    def progress(self, of: str, done: int, total: int) -> None:
        words, under_way = self._words, done < total and bool(self.activity)
        words[AT["progress_of"]] = (1 + record.PROGRESS.index(of)) * under_way
        words[AT["progress_done"]] = done * under_way
        words[AT["progress_total"]] = total * under_way
        self._store.publish(words)
