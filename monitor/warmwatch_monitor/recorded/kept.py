"""What is kept of a record from look to look, so that a rank costs what moves in it and no more.

Five hundred ranks are looked at five times a second, and most of what they say is as it was. The
source and the unpacking of a record give the same object for what is the same, so identity tells.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from signal import Signals

from msgspec import Struct

from warmwatch.record import ENDS, Slot
from warmwatch_monitor.model import (
    Agent,
    Baseline,
    Compile,
    Lengths,
    Life,
    Log,
    Memory,
    RecordReading,
    Steps,
    Warmups,
    Who,
    Worth,
)
from warmwatch_monitor.recorded import blocks
from warmwatch_monitor.recorded.lengths import lengths
from warmwatch_monitor.recorded.log import log_of, same_lines


class Kept(Struct, frozen=True, kw_only=True):
    """All figures of one reading that no clock changes."""

    reading: RecordReading
    who: Who
    compile: Compile
    steps: Steps
    warmups: Warmups
    life: Life
    agent: Agent
    log: Log
    memory: Memory | None
    worth: Worth
    baseline: Baseline | None


_kept: dict[str, Kept] = {}


def kept(reading: RecordReading) -> Kept:
    """That of ``reading``, with what has changed since its record was last looked at made anew."""
    before = _kept.get(reading.folder)
    if before is None or before.reading is not reading:
        before = _kept[reading.folder] = _make(reading, before)
    return before


def forget_others(readings: Iterable[RecordReading]) -> None:
    """Keep nothing of records that are no more."""
    there = {reading.folder for reading in readings}
    for folder in _kept.keys() - there:
        del _kept[folder]


def _make(reading: RecordReading, before: Kept | None) -> Kept:
    slot = reading.slot
    if before is None or _of_another(slot, before.reading.slot):
        before = None
    same = before if before and slot.compile is before.reading.slot.compile else None
    clean = lengths(slot.clean_bins, slot.clean_sum_ns)
    return Kept(
        reading=reading,
        who=before.who if before else blocks.who(slot.header, slot.identity, reading.owner),
        compile=same.compile if same else blocks.compile_of(slot),
        steps=blocks.steps_of(slot, clean, _touched(slot, same)),
        warmups=_warmups(slot, same),
        life=same.life if same and _as_alive(reading, same.life) else _life(reading),
        agent=same.agent if same and _as_broken(reading, same) else _agent(reading),
        log=same.log if same and same_lines(reading, same.reading) else log_of(reading),
        memory=same.memory if same else blocks.memory_of(slot),
        worth=same.worth if same else blocks.worth_of(slot),
        baseline=before.baseline if before else blocks.baseline_of(slot.identity),
    )


def _of_another(slot: Slot, old: Slot) -> bool:
    """Whether they are of two processes, or of one that says other things of itself now."""
    return (slot.header, slot.identity) != (old.header, old.identity)


def _touched(slot: Slot, same: Kept | None) -> Lengths:
    """``same``: of a reading with the same rare block, so with the same sum of lengths."""
    if same is not None and slot.compile_bins is same.reading.slot.compile_bins:
        return same.steps.touched
    return lengths(slot.compile_bins, slot.compile.compile_step_sum_ns)


def _warmups(slot: Slot, same: Kept | None) -> Warmups:
    began = same is not None and bool(slot.steps.steps) != bool(same.reading.slot.steps.steps)
    if (
        same is not None
        and not began
        and blocks.warmup_ended(slot) == (same.warmups.latest is not None)
    ):
        return same.warmups
    return blocks.warmups_of(slot)


def _as_alive(reading: RecordReading, life: Life) -> bool:
    now = (reading.alive, reading.pid, reading.exception, _signal(reading))
    return now == (life.alive, life.pid, life.exception, life.signal)


def _life(reading: RecordReading) -> Life:
    counts = reading.slot.compile
    return Life(
        alive=reading.alive,
        pid=reading.pid,
        end=ENDS[counts.end_code] or None,
        exit_code=counts.exit_code - 1 if counts.exit_code else None,
        exception=reading.exception,
        killed_at_end=bool(not reading.alive and counts.ended_ns and not counts.end_code),
        signal=_signal(reading),
    )


def _signal(reading: RecordReading) -> str | None:
    """Only of a process that was killed: one that caught it and exited has an end of its own."""
    if reading.death is None or reading.slot.compile.end_code:
        return None
    with suppress(ValueError):
        return Signals(reading.death.signal).name
    return f"signal {reading.death.signal}"


def _as_broken(reading: RecordReading, before: Kept) -> bool:
    now, then = (
        (one.broken_lines, one.unread_bytes, one.skipped_bytes) for one in (reading, before.reading)
    )
    return now == then


def _agent(reading: RecordReading) -> Agent:
    identity, counts = reading.slot.identity, reading.slot.compile
    return Agent(
        version=identity.agent or None,
        missing=identity.missing,
        errors=counts.agent_errors,
        lines_dropped=counts.journal_dropped,
        lines_broken=reading.broken_lines,
        unread_bytes=reading.unread_bytes,
        skipped_bytes=reading.skipped_bytes,
    )
