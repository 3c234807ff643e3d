"""The record's file ``stacks``: stack dumps of long compilations. Pure.

One JSON object a line, appended, the oldest first. All are of one activity: the last that took
longer than the agent's limit. A frame is a function's name, the base name of its file and a line:
no value, no source. Lines and the file are bounded; a reader rejects anything else.
"""

import json
from typing import Any, NamedTuple

from warmwatch.shared.record.sealed_blocks import RecordError
from warmwatch.shared.values import PHASES, printable

STACKS_LIMIT = 256 * 1024  # bytes of the file
LINE_LIMIT = 64 * 1024  # of one dump, newline included
MOST_FRAMES = 100  # of a thread: 80 of the innermost, 20 of the outermost
MOST_THREADS = 32
INNERMOST = 80
NAME_LIMIT = 120  # characters of a name
_LARGEST = 2**63


class Frame(NamedTuple):
    """A running function, the base name of its file, and its current line."""

    name: str
    file: str
    line: int


class ThreadStack(NamedTuple):
    """One thread, innermost frame first.

    Attributes:
        frames: its frames. left_out: the number of frames left out after the 80th.
        main: it is the main thread. compiles: it has compile activity in progress.
    """

    frames: tuple[Frame, ...]
    left_out: int = 0
    main: bool = False
    compiles: bool = False


class Stacks(NamedTuple):
    """All threads at one moment.

    Attributes:
        at_ns: when. since_ns: begin of the activity that was in progress. phase: its phase.
        threads: those that compile first, then the main one. threads_left_out: the number left out.
    """

    at_ns: int
    since_ns: int
    phase: str | None = None
    threads: tuple[ThreadStack, ...] = ()
    threads_left_out: int = 0


def cut(frames: list[Frame]) -> tuple[tuple[Frame, ...], int]:
    """The included frames of a thread, and the number left out of the middle."""
    more = max(0, len(frames) - MOST_FRAMES)
    return (*frames[:INNERMOST], *frames[INNERMOST + more :]), more


def pack_stacks(stacks: Stacks) -> bytes:
    """A line of the file, with as many of the threads as fit."""
    while True:
        line = json.dumps(_as_json(stacks), separators=(",", ":")).encode() + b"\n"
        if len(line) <= LINE_LIMIT or not stacks.threads:
            return line
        fewer, left_out = stacks.threads[:-1], stacks.threads_left_out + 1
        stacks = stacks._replace(threads=fewer, threads_left_out=left_out)


def _as_json(stacks: Stacks) -> dict[str, Any]:
    return {
        "t": stacks.at_ns,
        "since": stacks.since_ns,
        "phase": stacks.phase,
        "more": stacks.threads_left_out,
        "threads": [
            {
                "main": thread.main,
                "compiles": thread.compiles,
                "more": thread.left_out,
                "frames": [
                    [f.name[:NAME_LIMIT], f.file[:NAME_LIMIT], f.line] for f in thread.frames
                ],
            }
            for thread in stacks.threads
        ],
    }


def unpack_stacks(line: bytes) -> Stacks:
    """Parse and check a line, which anybody may have written.

    Raises:
        RecordError: it is invalid.
    """
    if len(line) > LINE_LIMIT:
        raise RecordError("a line of its stacks is too long")
    try:
        value = json.loads(line)
        threads = value["threads"]
        if not isinstance(threads, list) or len(threads) > MOST_THREADS:
            raise RecordError("its stacks are of too many threads")
        phase = value["phase"]
        return Stacks(
            at_ns=_number(value["t"]),
            since_ns=_number(value["since"]),
            phase=phase if phase in PHASES else None,
            threads=tuple(map(_thread, threads)),
            threads_left_out=_number(value["more"]),
        )
    except RecordError:  # its message is specific; it is a ValueError too
        raise
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise RecordError(f"a line of its stacks cannot be read ({type(error).__name__})") from None


def _thread(value: Any) -> ThreadStack:
    frames = value["frames"]
    if not isinstance(frames, list) or len(frames) > MOST_FRAMES:
        raise RecordError("a thread of its stacks has too many frames")
    return ThreadStack(
        frames=tuple(map(_frame, frames)),
        left_out=_number(value["more"]),
        main=value["main"] is True,
        compiles=value["compiles"] is True,
    )


def _frame(value: Any) -> Frame:
    name, file, line = value
    if not isinstance(name, str) or not isinstance(file, str):
        raise TypeError
    return Frame(printable(name[:NAME_LIMIT]), printable(file[:NAME_LIMIT]), _number(line))


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _LARGEST:
        raise TypeError
    return value
