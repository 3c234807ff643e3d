"""Stack dumps during long compilations, written to the record.

Once an activity is as old as the limit, the stacks of all threads are written: names of functions,
base names of files, lines. Each pause until the next dump is twice the one before.
That needs no permission, stops nothing and reads no source line. If a hang holds the interpreter's
lock, nothing is written, and only py-spy can read the stacks.
"""

from __future__ import annotations

import gc
import os
import sys
from _thread import get_ident
from collections.abc import Callable, Collection
from threading import main_thread
from time import monotonic_ns
from types import FrameType

from warmwatch._guard import pass_on
from warmwatch.recorder.files import room
from warmwatch.shared.record import PHASES
from warmwatch.shared.record.stack_file import (
    MOST_THREADS,
    STACKS_LIMIT,
    Frame,
    Stacks,
    ThreadStack,
    cut,
    pack_stacks,
)

_DEEPEST = 10_000  # frames
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK


class StackWriter:
    """Writes the stacks of an activity.

    Args:
        phase: 1 + the position of its phase in PHASES, or 0. threads: those that compile.
        opened: opens the record's file of stacks with these flags; ``None`` if there is no record.
    """

    def __init__(
        self,
        *,
        phase: Callable[[], int],
        threads: Callable[[], Collection[int]],
        opened: Callable[[int], int | None],
    ) -> None:
        self._phase, self._compiling, self._opened = phase, threads, opened

    def write(self, since: int, first: bool) -> None:
        """Write one dump. If the disk refuses it, the next one tries again.

        The file holds one activity: its ``first`` dump replaces older content. So does one too
        many.
        """
        line = pack_stacks(self._look(since))
        try:
            file = self._opened(_FLAGS)
            if file is None:
                return
            try:
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
        threads = _threads(compiling)
        return Stacks(
            at_ns=monotonic_ns(),
            since_ns=since,
            phase=PHASES[phase - 1] if phase else None,
            threads=tuple(threads[:MOST_THREADS]),
            threads_left_out=max(0, len(threads) - MOST_THREADS),
        )


def _threads(compiling: Collection[int]) -> list[ThreadStack]:
    """Every thread but the agent's: those that compile first, then the main one."""
    main, result = main_thread().ident, []
    for ident, innermost in _current_frames().items():
        frames, ours = _frames(innermost)
        if ident == get_ident() or (ours and ident != main):
            continue
        included, left_out = cut(frames)
        result.append(
            ThreadStack(
                frames=included, left_out=left_out, main=ident == main, compiles=ident in compiling
            )
        )
    return sorted(result, key=lambda stack: (not stack.compiles, not stack.main))


def _current_frames() -> dict[int, FrameType]:
    """The innermost frame of each thread.

    Before Python 3.12 a garbage collection in it can hang the process: what is collected may let
    another thread run, which then waits for a lock that this call holds (CPython issue 106883).
    """
    collects = gc.isenabled() and sys.version_info < (3, 12)
    if not collects:
        return sys._current_frames()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        gc.enable()


def _frames(frame: FrameType | None) -> tuple[list[Frame], bool]:
    """Frames, innermost first; and whether it is a thread of the agent. Keeps no frame alive."""
    frames: list[Frame] = []
    module = ""
    while frame is not None and len(frames) < _DEEPEST:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)  # since 3.11, with its class
        frames.append(Frame(name, code.co_filename.rpartition("/")[2], frame.f_lineno or 0))
        module = str(frame.f_globals.get("__name__", ""))
        frame = frame.f_back
    return frames, module.startswith("warmwatch.")
