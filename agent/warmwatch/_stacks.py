"""Where the process is while a compilation goes on for long: its Python stacks, into its record.

Once an activity is as old as the limit, and then ever more rarely (each pause is twice the one
before), the stacks of all threads are written: names of functions, base names of files, lines. No
permission is needed, nothing is stopped, no line of source is read.

The thread that does it is there only while compile activity is in progress: the event that begins
it starts the thread, the one that ends it has it end. It sleeps in between, and what it does may
wait for a disk, which nobody waits for. It needs the interpreter: where a hang holds its lock
(the GIL), nothing is written, and py-spy alone sees in.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from collections.abc import Callable, Collection
from pathlib import Path
from threading import main_thread
from time import monotonic_ns
from types import FrameType

from warmwatch._deaf_thread import DeafThread, release, taken
from warmwatch._descriptors import opened_high
from warmwatch._guard import pass_on, report
from warmwatch._record_files import room
from warmwatch.record import PHASES, STACKS
from warmwatch.record.stacks import (
    MOST_THREADS,
    STACKS_LIMIT,
    Frame,
    Stacks,
    ThreadStack,
    cut,
    pack_stacks,
)

_LONGEST_NAP = 5.0  # seconds: an activity may end with no event of its own
_DEEPEST = 10_000  # frames
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK

Place = tuple[Path, int]  # the record's folder, and the mode of files in it


class StackWatch:
    """Writes the stacks of activities that go on for longer than ``after`` seconds.

    Args:
        after: ``None``: never, and there is no thread.
        since: begin of the activity in progress in monotonic nanoseconds, 0 where there is none.
        phase: 1 + the position of its phase in PHASES, or 0. threads: those that compile.
        place: where to; ``None`` where there is no record.
    """

    def __init__(
        self,
        after: float | None,
        *,
        since: Callable[[], int],
        phase: Callable[[], int],
        threads: Callable[[], Collection[int]],
        place: Callable[[], Place | None],
    ) -> None:
        self._after, self._since, self._phase = after, since, phase
        self._compiling, self._place = threads, place
        self._turn: dict[None, DeafThread] = {}  # the thread that watches, if any
        self._wake = taken()

    def begun(self) -> None:
        """Something began on the calling thread: have it watched."""
        if self._after is None or self._turn or not self._since():
            return
        thread = DeafThread(self._run)
        try:
            if self._turn.setdefault(None, thread) is thread:
                thread.start()
        finally:  # a signal handler may raise; without a thread the next event tries again
            if self._turn.get(None) is thread and not thread.started():
                self._turn.clear()

    def ended(self) -> None:
        """Something ended on the calling thread: where that was all, the watch is over."""
        if self._turn and not self._since():
            release(self._wake)

    def stop(self) -> None:
        """Watch no more."""
        self._after = None
        release(self._wake)

    # The thread.

    def _run(self) -> None:
        me = self._turn.get(None)
        while True:
            try:
                self._follow()
            except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
                report("stacks", error)
                return  # and keeps its turn: no other thread will do better
            self._turn.clear()
            # one that began meanwhile may have found us at it
            if me is None or not self._since() or self._after is None:
                return
            if self._turn.setdefault(None, me) is not me:
                return

    def _follow(self) -> None:
        """Until nothing is in progress, or nobody wants to know."""
        watched, due = 0, 0.0
        while (since := self._since()) and (after := self._after) is not None:
            age = _age(since)
            if since != watched:
                watched, due = since, after
            elif age >= due:
                self._write(since, first=due == after)
                due = 2 * _age(since)
                continue
            self._wake.acquire(timeout=max(0.001, min(due - age, _LONGEST_NAP)))

    def _write(self, since: int, *, first: bool) -> None:
        """What a disk does not take is left out: the next look tries again.

        The file is of one activity: its ``first`` look ends what was there. So does one too many.
        """
        place = self._place()
        if place is None:
            return
        folder, mode = place
        line = pack_stacks(self._look(since))
        try:
            file = opened_high(folder / STACKS, _FLAGS, mode)
            try:
                os.fchmod(file, mode)  # whatever the umask
                most = room(file, STACKS_LIMIT)
                if first or os.fstat(file).st_size + len(line) > most:
                    os.ftruncate(file, 0)
                if len(line) <= most:
                    os.write(file, line)
            finally:
                os.close(file)
        except OSError as error:
            pass_on(error)

    def _look(self, since: int) -> Stacks:
        phase, compiling = self._phase(), frozenset(self._compiling())
        found = _threads(compiling)
        return Stacks(
            at_ns=monotonic_ns(),
            since_ns=since,
            phase=PHASES[phase - 1] if phase else None,
            threads=tuple(found[:MOST_THREADS]),
            threads_left_out=max(0, len(found) - MOST_THREADS),
        )


def _age(since: int) -> float:
    return (monotonic_ns() - since) / 1e9


def _threads(compiling: Collection[int]) -> list[ThreadStack]:
    """Every thread but ours: those that compile first, then the main one."""
    main, found = main_thread().ident, []
    for ident, innermost in sys._current_frames().items():
        frames, ours = _frames(innermost)
        if ident == get_ident() or (ours and ident != main):
            continue
        kept, left_out = cut(frames)
        found.append(
            ThreadStack(
                frames=kept, left_out=left_out, main=ident == main, compiles=ident in compiling
            )
        )
    return sorted(found, key=lambda one: (not one.compiles, not one.main))


def _frames(frame: FrameType | None) -> tuple[list[Frame], bool]:
    """Innermost first; and whether it is a thread of ours. No frame is held on to."""
    found: list[Frame] = []
    module = ""
    while frame is not None and len(found) < _DEEPEST:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)  # from 3.11 on with its class
        found.append(Frame(name, code.co_filename.rpartition("/")[2], frame.f_lineno or 0))
        module = str(frame.f_globals.get("__name__", ""))
        frame = frame.f_back
    return found, module.startswith("warmwatch.")
