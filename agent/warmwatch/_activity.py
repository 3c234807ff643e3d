"""What is being compiled right now, and which phase its time belongs to.

Threads begin and end events; events nest. Each thread has its own stack of what it has begun. Time
is given to one phase at a time: the innermost of the thread that has been compiling longest, the
one that the training waits for. Hence phase times are exclusive, and their sum is the time in which
anything was compiled.

What one thread began another may end: Dynamo's callbacks count the threads that compile, and the
last of them calls the end of what the first began.

A thread that still compiles while another marks a step compiles in the background: that step is
complete, so it did not wait for the end of that compilation. From then on the thread's time belongs
to no phase, until it has ended what it had begun.

Not for use by several threads at once: :class:`warmwatch._ledger.Ledger` lets one in at a time.
"""

from __future__ import annotations

from collections.abc import Collection

from warmwatch._phases import phase_of
from warmwatch.record import COMPILE_INDEX, PHASES

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
