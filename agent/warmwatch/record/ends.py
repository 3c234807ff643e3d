"""The record's third file, ``exit``, and what it says of an end. Pure.

It is there from the moment the record is, and empty. When Python ends, one byte promises the exit
status; when the process exits by way of the C library, which then knows it, that is appended as one
``int`` of 4 bytes. It stays empty where the process was killed by a signal before (Ctrl-C
included), left by ``os._exit``, or was detached. A promise that was not kept is a process that died
between the two: killed, by a crash of a library at its end for example, or by ``os._exit``.
A reader takes it once the slot's lock is free.
"""

from __future__ import annotations

from dataclasses import replace

from warmwatch.record.facts import ENDS, CompileCounts

_STATUS_BYTES = 4
EXIT_PROMISED = b"?"


def exit_code(data: bytes) -> int | None:
    """The exit code, 0 to 255, from the bytes of ``exit``; ``None`` where they tell none."""
    if len(data) < _STATUS_BYTES:
        return None
    return int.from_bytes(data[-_STATUS_BYTES:], "little") & 0xFF


def broken_promise(data: bytes) -> bool:
    """Whether ``exit`` promises a status that it does not hold."""
    return data == EXIT_PROMISED


def without_end(counts: CompileCounts) -> CompileCounts:
    """The facts of a process that said "finished" and died before it had: its end is none.

    ``ended_ns`` stays, when it said so. What is known by its code, or is another end, stays too.
    """
    if ENDS[counts.end_code] != "finished" or counts.exit_code:
        return counts
    return replace(counts, end_code=0)


def with_exit_code(counts: CompileCounts, code: int | None) -> CompileCounts:
    """The facts of a process that is gone, given the code it left: the code decides.

    At exit the agent does not know it yet, and says "finished" of a ``sys.exit(1)``.
    """
    if code is None:
        return counts
    if ENDS[counts.end_code] == "interrupted":  # whatever code the launcher of a child makes of it
        return replace(counts, exit_code=1 + code)
    return replace(
        counts, end_code=ENDS.index("failed" if code else "finished"), exit_code=1 + code
    )
