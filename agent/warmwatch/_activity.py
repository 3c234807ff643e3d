"""What is being compiled right now, and which phase its time belongs to.

Threads begin and end events; events nest. Each thread has its own stack of what it has begun. Time
is given to one phase at a time: the innermost of the thread that has been compiling longest, the
one that the training waits for. Hence phase times are exclusive, and their sum is the time in which
anything was compiled.

Not for use by several threads at once: :class:`warmwatch._ledger.Ledger` lets one in at a time.
"""

from __future__ import annotations

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
        self._phases: dict[str, int | None] = {}

    def __bool__(self) -> bool:
        """Whether any thread is compiling."""
        return bool(self._stacks)

    def holds(self, thread: int) -> bool:
        """Whether ``thread`` has begun something that it has not ended."""
        return thread in self._stacks

    def begin(self, thread: int, event: str, now: int) -> bool:
        """Enter an event; whether the current phase changed."""
        stack = self._stacks.setdefault(thread, [])
        phase = self._phase(event)
        if phase is None:
            phase = stack[-1][1] if stack else _OTHER
        stack.append((event, phase))
        return self._account(now)

    def end(self, thread: int, event: str, now: int) -> bool:
        """Leave an event and what was begun inside it; whether the current phase changed."""
        stack = self._stacks.get(thread)
        if not stack or all(name != event for name, _ in stack):
            return False  # we were attached in the middle of it
        while stack.pop()[0] != event:
            pass
        if not stack:
            del self._stacks[thread]
        return self._account(now)

    def abandon(self, thread: int, now: int) -> bool:
        """Leave everything that ``thread`` has begun."""
        self._stacks.pop(thread, None)
        return self._account(now)

    def total_ns(self) -> int:
        """Compile time accounted so far, in nanoseconds."""
        return sum(self._words[_PHASE_NS : _PHASE_NS + len(PHASES)])

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
