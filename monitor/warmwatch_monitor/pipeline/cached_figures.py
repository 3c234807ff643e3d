"""Figures of a record, cached between polls: a rank costs only what changed."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from signal import Signals

from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared.record import ENDS, Slot
from warmwatch_monitor.model import (
    Agent,
    Baseline,
    Compile,
    Lengths,
    Life,
    Log,
    LongStep,
    Memory,
    RecordReading,
    Steps,
    Underway,
    Warmups,
    Who,
    Worth,
)
from warmwatch_monitor.pipeline import slot_figures
from warmwatch_monitor.pipeline.clean_steps import QueuedSteps
from warmwatch_monitor.pipeline.slot_figures import lengths


def log_of(reading: RecordReading) -> Log:
    """The log of ``reading``; the slot shows which activity is in progress."""
    began_ns = reading.slot.compile.episode_began_ns
    since = [c for c in reading.compilations if began_ns and c.at_ns >= began_ns]
    return Log(
        compilations=reading.compilations,
        fallbacks=reading.fallbacks,
        skips=reading.skips,
        breaks=reading.breaks,
        functions=reading.functions,
        long_steps=_long_steps(reading),
        underway=_underway(reading),
        varying=reading.varying,
        reopened_by=next((c for c in reversed(since) if c.reason), None),
    )


def _long_steps(reading: RecordReading) -> tuple[LongStep, ...]:
    return tuple(sorted(set(reading.long_steps), key=lambda one: one.at_ns))


def up_to_now(log: Log, reading: RecordReading) -> Log:
    """``log`` with the clean steps since the last journal line added to its dimensions."""
    if not log.varying or reading.warm_since is None:
        return log
    since_ns, since = reading.warm_since
    took_ns, steps = reading.slot.steps.last_step_ns - since_ns, reading.slot.steps.steps - since
    if took_ns <= 0 or steps < 1 or reading.slot.compile.active_since_ns:
        return log
    varying = tuple(
        replace(one, since_ns=one.since_ns + took_ns, since_steps=one.since_steps + steps)
        for one in log.varying
    )
    return replace(log, varying=varying)


def same_lines(reading: RecordReading, other: RecordReading) -> bool:
    """Whether two readings agree in all inputs of a log except the slot."""
    return (
        reading.compilations is other.compilations
        and reading.fallbacks is other.fallbacks
        and reading.skips is other.skips
        and reading.beginning is other.beginning
        and reading.recompile is other.recompile
        and reading.breaks == other.breaks
        and reading.varying is other.varying
        and reading.functions is other.functions
        and reading.long_steps is other.long_steps
    )


def _underway(reading: RecordReading) -> Underway | None:
    """What the activity in progress compiles, from its own journal lines only.

    A lazy backward has no lines of its own before it ends; it follows its forward.
    """
    since_ns = reading.slot.compile.active_since_ns
    began, again = reading.beginning, reading.recompile
    if not since_ns:
        return None
    if again is not None and again.at_ns >= since_ns:
        return Underway(
            kind=again.kind,
            name=again.name,
            file=again.file,
            line=again.line,
            reason=again.reason,
            category=again.category,
            caller=again.caller,
            dynamic=again.dynamic,
        )
    if began is None or began.at_ns < since_ns:
        return None
    if began.name is not None or began.kind is not None:
        return Underway(
            kind=began.kind,
            name=began.name,
            file=began.file,
            line=began.line,
            caller=began.caller,
            dynamic=began.dynamic,
        )
    if "backward" not in (began.what or ""):
        return None
    forward = next((c for c in reversed(reading.compilations) if c.kind == "forward"), None)
    if forward is None:
        return Underway(backward=True)
    ours = forward.at_ns >= reading.slot.compile.episode_began_ns > 0
    return Underway(
        name=forward.name,
        file=forward.file,
        line=forward.line,
        backward=True,
        reason=forward.reason if ours else None,
        category=forward.category if ours else None,
        caller=forward.caller,
        dynamic=forward.dynamic,
    )


class CachedFigures(Struct, frozen=True, kw_only=True):
    """All figures of one reading that do not depend on the clock."""

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
    queued: QueuedSteps | None


_cached: dict[str, CachedFigures] = {}


def cached_figures(reading: RecordReading) -> CachedFigures:
    """The figures of ``reading``; recomputes only the parts that changed since the last poll."""
    before = _cached.get(reading.folder)
    if before is None or before.reading is not reading:
        before = _cached[reading.folder] = _make(reading, before)
    return before


def forget_others(readings: Iterable[RecordReading]) -> None:
    """Evict the figures of records that no longer exist."""
    there = {reading.folder for reading in readings}
    for folder in _cached.keys() - there:
        del _cached[folder]


def _make(reading: RecordReading, before: CachedFigures | None) -> CachedFigures:
    slot = reading.slot
    if before is None or _of_another(slot, before.reading.slot):
        before = None
    same = before if before and slot.compile is before.reading.slot.compile else None
    clean = lengths(slot.clean_bins, slot.clean_sum_ns)
    queued = QueuedSteps.follow(before.queued if before else None, slot)
    log = same.log if same and same_lines(reading, same.reading) else log_of(reading)
    if queued and reading.long_steps:
        log = replace(log, long_steps=queued.gaps(_long_steps(reading)))
    return CachedFigures(
        reading=reading,
        who=before.who if before else slot_figures.who(slot.header, slot.identity, reading.owner),
        compile=same.compile if same else slot_figures.compile_of(slot),
        steps=slot_figures.steps_of(slot, clean, _touched(slot, same), queued),
        warmups=_warmups(slot, same),
        life=same.life if same and _as_alive(reading, same.life) else _life(reading),
        agent=same.agent if same and _as_broken(reading, same) else _agent(reading),
        log=log,
        memory=same.memory if same else slot_figures.memory_of(slot),
        worth=same.worth if same else slot_figures.worth_of(slot),
        baseline=before.baseline if before else slot_figures.baseline_of(slot.identity),
        queued=queued,
    )


def _of_another(slot: Slot, old: Slot) -> bool:
    """Whether the slots are of two processes, or the identity has changed."""
    return (slot.header, slot.identity) != (old.header, old.identity)


def _touched(slot: Slot, same: CachedFigures | None) -> Lengths:
    """``same``: figures with the same compile block, so with the same sum of lengths."""
    if same is not None and slot.compile_bins is same.reading.slot.compile_bins:
        return same.steps.touched
    return lengths(slot.compile_bins, slot.compile.compile_step_sum_ns)


def _warmups(slot: Slot, same: CachedFigures | None) -> Warmups:
    began = same is not None and bool(slot.steps.steps) != bool(same.reading.slot.steps.steps)
    if (
        same is not None
        and not began
        and slot_figures.warmup_ended(slot) == (same.warmups.latest is not None)
    ):
        return same.warmups
    return slot_figures.warmups_of(slot)


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
        raised=reading.raised,
        killed_at_end=bool(not reading.alive and counts.ended_ns and not counts.end_code),
        signal=_signal(reading),
    )


def _signal(reading: RecordReading) -> str | None:
    """The signal that killed the process; ``None`` if it recorded an exit of its own."""
    if reading.death is None or reading.slot.compile.end_code:
        return None
    with suppress(ValueError):
        return Signals(reading.death.signal).name
    return f"signal {reading.death.signal}"


def _as_broken(reading: RecordReading, before: CachedFigures) -> bool:
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
