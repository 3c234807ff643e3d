"""What a journal tells of the compiler: one by one, now, and why the warm-up is open. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from warmwatch_monitor.model import Log, RecordReading, Underway


def log_of(reading: RecordReading) -> Log:
    """All of it, given what the slot says of the activity in progress."""
    began_ns = reading.slot.compile.episode_began_ns
    since = [c for c in reading.compilations if began_ns and c.at_ns >= began_ns]
    return Log(
        compilations=reading.compilations,
        fallbacks=reading.fallbacks,
        skips=reading.skips,
        breaks=reading.breaks,
        functions=reading.functions,
        long_steps=tuple(sorted(set(reading.long_steps), key=lambda one: one.at_ns)),
        underway=_underway(reading),
        varying=reading.varying,
        reopened_by=next((c for c in reversed(since) if c.reason), None),
    )


def up_to_now(log: Log, reading: RecordReading) -> Log:
    """``log`` with the clean steps that go on, for the dimensions that changed before them."""
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
    """Whether two readings have the same of all that a log is made of, beside the slot."""
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
    """What the activity in progress compiles: its own lines of the journal tell, no earlier ones.

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
        )
    if began is None or began.at_ns < since_ns:
        return None
    if began.name is not None or began.kind is not None:
        return Underway(kind=began.kind, name=began.name, file=began.file, line=began.line)
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
    )
