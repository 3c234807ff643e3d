"""The figures of a record at one moment: cached ones, and those that depend on the clock.

Figures are cached between polls: a rank costs only what changed.
"""

from __future__ import annotations

from collections.abc import Collection
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared import record, verdict
from warmwatch.shared.record import ENDS, PHASES, Slot
from warmwatch.shared.record.recent import gap_ns, marks_ns
from warmwatch.shared.states import ENDED
from warmwatch.shared.verdict import Facts, Judgement
from warmwatch_monitor.figures.compile import Compile, CompilingWorkers, OpenActivity, Workers
from warmwatch_monitor.figures.declared import copied
from warmwatch_monitor.figures.training import EagerSteps, Pauses
from warmwatch_monitor.model.figures import (
    Agent,
    Figures,
    Lengths,
    Life,
    Log,
    Memory,
    Progress,
    Steps,
    Stretch,
    Underway,
    Warmups,
    Who,
    Worth,
)
from warmwatch_monitor.model.journal import Beginning, Compilation, LongStep
from warmwatch_monitor.model.machine import ProcessReading
from warmwatch_monitor.model.records import (
    Journaled,
    RecordReading,
    VaryingDim,
    is_present,
    signal_name,
)
from warmwatch_monitor.pipeline import slot_figures
from warmwatch_monitor.pipeline.clean_steps import LastSecond, QueuedSteps, gaps
from warmwatch_monitor.pipeline.slot_figures import by_phase, counted_of, epoch, lengths, seconds


def figures(
    reading: RecordReading,
    facts: Facts,
    judgement: Judgement,
    now_ns: int,
    process: ProcessReading | None = None,
    read_ns: int | None = None,
) -> Figures:
    """The figures of ``reading``, read at ``read_ns``, at ``now_ns``.

    ``judgement``: the verdict from its ``facts``.
    """
    cached, read_ns = cached_figures(reading), read_ns or now_ns
    return copied(
        cached,
        Figures,
        compile=_with_open_activity(cached.compile, reading, judgement, now_ns, read_ns),
        warmups=_with_earlier(cached.warmups, facts),
        progress=_progress(reading, facts, judgement, now_ns, read_ns),
        pauses=_with_open_pauses(cached.pauses, reading, judgement, now_ns),
        workers=_workers(process),
        loader_workers=_loader_workers(reading, now_ns),
    )


def _progress(
    reading: RecordReading, facts: Facts, judgement: Judgement, now_ns: int, read_ns: int
) -> Progress:
    slot = reading.slot
    stepped = slot.steps.last_step_ns if judgement.state not in ENDED else 0
    return Progress(
        quiet_seconds=max(0, now_ns - verdict.quiet_since_ns(facts)) / 1e9,
        state_since=epoch(slot.header, judgement.since_ns),
        compiler_quiet_seconds=_ago(slot.compile.last_end_ns, now_ns),
        stall_limit_seconds=seconds(verdict.stall_after_ns(facts)),
        batch_quiet_seconds=_ago(slot.steps.last_batch_ns, now_ns),
        open_seconds=_ago(verdict.open_since_ns(facts), now_ns),
        stretch=_stretch(slot, facts, now_ns, read_ns) if judgement.state not in ENDED else None,
        compile_limit_seconds=seconds(verdict.compile_limit_ns(facts)),
        compile_precedent_seconds=seconds(verdict.compile_precedent_ns(facts)),
        last_step_age_seconds=_ago(stepped, max(now_ns, stepped)),
        gap_seconds=_since_gap(reading, facts.usual_step_ns, now_ns) if stepped else None,
    )


def _stretch(slot: Slot, facts: Facts, now_ns: int, read_ns: int) -> Stretch | None:
    """The time of the compiler counts up to the reading, as in :func:`_with_open_activity`."""
    since, counts = verdict.compiling_since_ns(facts), slot.compile
    if since is None:
        return None
    spent = sum(counts.phase_ns) - counts.compiling_before_ns
    if counts.active_since_ns:
        spent += max(0, min(now_ns, read_ns) - counts.accounted_ns)
    return Stretch(
        began_at=slot.header.epoch_seconds(since),
        seconds=max(0, now_ns - since) / 1e9,
        compiler_seconds=min(spent, now_ns - since) / 1e9 if counts.compiling_since_ns else None,
    )


_GAP_NS, _GAP_STEPS = 5 * 10**8, 4
_GAP_AGO_NS = 10 * 10**9


def _since_gap(reading: RecordReading, usual_ns: float | None, now_ns: int) -> float | None:
    """Seconds since the last step after a gap, in which the GPUs may have been idle."""
    if not usual_ns:
        return None
    ring, last_ns = reading.slot.recent, reading.slot.steps.last_step_ns
    long_ns = max(_GAP_NS, _GAP_STEPS * usual_ns)
    if now_ns - last_ns > long_ns:
        return 0.0
    if max(ring, default=0) <= long_ns:  # each word of the ring is at least the gap in it
        return None
    for at_ns, word in marks_ns(ring, last_ns):
        if now_ns - at_ns > _GAP_AGO_NS:
            return None
        if gap_ns(word) > long_ns:
            return max(0, now_ns - at_ns) / 1e9
    return None


def _with_open_pauses(
    pauses: Pauses, reading: RecordReading, judgement: Judgement, now_ns: int
) -> Pauses:
    """``pauses`` with those in progress.

    A save that an unclean end interrupted lasts until that end, and so does an evaluation without
    an end while the process still exits, which is one evaluation more: no figure shrinks.
    """
    slot, counts = reading.slot, reading.slot.compile
    save = verdict.saving_since_ns(slot.steps, counts)
    evaluation = verdict.evaluating_since_ns(slot.steps, counts)
    cells = verdict.between_cells_since_ns(slot.steps, counts)
    if not (save or evaluation or cells):
        return pauses
    living = judgement.state not in ENDED and not counts.ended_ns
    until = now_ns if living else counts.ended_ns or reading.gone_ns or 0

    def open_ns(since: int) -> int:
        return max(0, until - since) if since else 0

    reports_saves = pauses.checkpoint_seconds is not None
    reported = counts.evaluations or evaluation
    return replace(
        pauses,
        checkpoint_seconds=(counts.saving_ns + open_ns(save)) / 1e9 if reports_saves else None,
        saving_since=epoch(slot.header, save) if living else None,
        saving_for_seconds=open_ns(save) / 1e9 if save and living else None,
        evaluation_seconds=(counts.evaluating_ns + open_ns(evaluation)) / 1e9 if reported else None,
        evaluating_since=epoch(slot.header, evaluation) if living else None,
        evaluating_for_seconds=open_ns(evaluation) / 1e9 if evaluation and living else None,
        evaluation_compiling_seconds=open_ns(max(evaluation, counts.active_since_ns)) / 1e9
        if evaluation and counts.active_since_ns
        else None,
        evaluations=counts.evaluations + bool(evaluation and not living) if reported else None,
        between_cells_since=epoch(slot.header, cells) if living else None,
        between_cells_seconds=(counts.between_cells_ns + open_ns(cells)) / 1e9 or None,
        between_cells_for_seconds=open_ns(cells) / 1e9 if cells and living else None,
    )


def _ago(then_ns: int | None, now_ns: int) -> float | None:
    """Seconds since a moment of the record, where 0 is "never"."""
    return (now_ns - then_ns) / 1e9 if then_ns else None


def _with_open_activity(
    figures: Compile, reading: RecordReading, judgement: Judgement, now_ns: int, read_ns: int
) -> Compile:
    """``figures`` with the activity in progress.

    Its time counts up to the reading, as it may have ended since. Activity that an unclean end
    interrupted lasts until that end: no figure shrinks.
    """
    slot, counts = reading.slot, reading.slot.compile
    living = judgement.state not in ENDED
    until = now_ns if living else counts.ended_ns or reading.gone_ns or 0
    if since := counts.background_since_ns:
        took = max(0, until - since) / 1e9
        figures = replace(
            figures,
            background_since=figures.background_since if living else None,
            background_seconds=(figures.background_seconds or 0.0) + took,
            background_for_seconds=took if living else None,
        )
    if not counts.active_since_ns:
        return figures
    phase = PHASES[counts.active_phase - 1] if counts.active_phase else None
    open_ns = max(0, (min(until, read_ns) if living else until) - counts.accounted_ns)
    return replace(
        figures,
        seconds=(sum(counts.phase_ns) + open_ns) / 1e9,
        phase_seconds=by_phase(counts, open_ns, phase or "other"),
        open=OpenActivity(
            began_at=slot.header.epoch_seconds(counts.active_since_ns),
            seconds=max(0, until - counts.active_since_ns) / 1e9,
            phase=phase,
            counted=counted_of(counts) if living else None,
        ),
    )


def _with_earlier(warmups: Warmups, facts: Facts) -> Warmups:
    if not facts.earlier_warmups_ns:
        return warmups
    return replace(warmups, earlier_seconds=tuple(ns / 1e9 for ns in facts.earlier_warmups_ns))


def _workers(process: ProcessReading | None) -> Workers | None:
    if process is None or process.workers_busy is None or process.workers_idle is None:
        return None
    return Workers(busy=process.workers_busy, idle=process.workers_idle)


def _loader_workers(reading: RecordReading, now_ns: int) -> CompilingWorkers | None:
    compilations = reading.workers
    if compilations is None:
        return None
    active = compilations.since_ns if reading.alive else ()
    open_ns = sum(max(0, now_ns - since) for since in active)
    return CompilingWorkers(
        compiling=len(active),
        since=epoch(reading.slot.header, active[0]) if active else None,
        for_seconds=max(0, now_ns - active[0]) / 1e9 if active else None,
        processes=compilations.processes,
        at_once=compilations.at_once,
        seconds=(compilations.compile_ns + open_ns) / 1e9,
        name=compilations.name,
    )


def _log(reading: RecordReading) -> Log:
    """The log of ``reading``; the slot shows which activity is in progress."""
    header, began_ns = reading.slot.header, reading.slot.compile.episode_began_ns

    def dated(compilation: Compilation) -> Compilation:
        return replace(compilation, ended_at=epoch(header, compilation.at_ns))

    reopened = (
        made
        for made in reversed(reading.compilations)
        if 0 < began_ns <= made.at_ns and (made.reason or made.again)
    )
    return copied(
        reading,
        Log,
        compilations=tuple(map(dated, reading.compilations)),
        dearest=dated(reading.dearest) if reading.dearest else None,
        long_steps=_long_steps(reading),
        underway=_underway(reading),
        reopened_by=next(reopened, None),
    )


def _long_steps(reading: RecordReading) -> tuple[LongStep, ...]:
    return tuple(sorted(set(reading.long_steps), key=lambda step: step.at_ns))


def _varying(reading: RecordReading) -> tuple[VaryingDim, ...]:
    """Its dimensions, with the clean steps since the last journal line added."""
    if not reading.varying or reading.warm_since is None:
        return reading.varying
    since_ns, steps_then = reading.warm_since
    took_ns = reading.slot.steps.last_step_ns - since_ns
    steps = reading.slot.steps.steps - steps_then
    if took_ns <= 0 or steps < 1 or reading.slot.compile.active_since_ns:
        return reading.varying
    return tuple(
        replace(dim, since_ns=dim.since_ns + took_ns, since_steps=dim.since_steps + steps)
        for dim in reading.varying
    )


_log_inputs = attrgetter(*Journaled.__struct_fields__, "beginning", "recompile")  # and the slot


def _underway(reading: RecordReading) -> Underway | None:
    """What the activity in progress compiles, from its own journal lines only."""
    since_ns = reading.slot.compile.active_since_ns
    beginning, recompile = reading.beginning, reading.recompile
    if not since_ns:
        return None
    if beginning is not None and beginning.at_ns < since_ns:
        beginning = None
    if recompile is not None and recompile.at_ns >= (beginning.at_ns if beginning else since_ns):
        return copied(recompile, Underway)
    if beginning is None:
        return None
    if "backward" in (beginning.what or ""):
        return _backward(reading, beginning)
    is_named = beginning.name is not None or beginning.kind is not None
    return copied(beginning, Underway) if is_named else None


def _backward(reading: RecordReading, beginning: Beginning) -> Underway:
    """The backward that began, with the name and the reason of its forward.

    A lazy backward has no reason of its own. An earlier warm-up's reason is not that of what
    compiles now.
    """
    underway = copied(beginning, Underway, backward=True)
    forwards = (
        compilation
        for compilation in reversed(reading.compilations)
        if compilation.kind == "forward" and compilation.id == beginning.id
    )
    forward = None if beginning.id is None else next(forwards, None)
    if forward is None:
        return underway
    named = underway if underway.name is not None else copied(forward, Underway, backward=True)
    of_warmup = forward.at_ns >= reading.slot.compile.episode_began_ns > 0
    reason, category = (forward.reason, forward.category) if of_warmup else (None, None)
    return replace(named, kind=None, reason=reason, category=category)


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
    pauses: Pauses
    memory: Memory | None
    worth: Worth
    baseline: EagerSteps | None
    queued: QueuedSteps | None
    last_second: LastSecond


_cached: dict[str, CachedFigures] = {}  # by folder of the record
_identity = attrgetter("slot.header", "slot.identity")
_journal_gaps = attrgetter("broken_lines", "unread_bytes", "skipped_bytes")


def cached_figures(reading: RecordReading) -> CachedFigures:
    """The figures of ``reading``; recomputes only the parts that changed since the last poll."""
    figures = _cached.get(reading.folder)
    if figures is None or figures.reading is not reading:
        figures = _cached[reading.folder] = _updated(reading, figures)
    return figures


def forget_gone(present: Collection[str] | None) -> None:
    """Evict the figures of records that no longer exist; ``present`` as for ``is_present``."""
    for folder in [folder for folder in _cached if not is_present(folder, present)]:
        del _cached[folder]


def _updated(reading: RecordReading, before: CachedFigures | None) -> CachedFigures:
    slot = reading.slot
    if before and _identity(before.reading) != _identity(reading):
        before = None  # another process
    # what depends on the compile block alone is still valid if that has not changed
    same = before if before and slot.compile is before.reading.slot.compile else None
    clean = lengths(slot.clean_bins, slot.clean_sum_ns)
    recent = record.recent_lengths(slot.recent)
    queued = QueuedSteps.follow(before.queued if before else None, slot, recent)
    last_second = LastSecond.follow(before.last_second if before else None, slot, clean)
    steps = slot_figures.steps_of(slot, clean, _touched(slot, same), recent, queued, last_second)
    log = same.log if same and _log_inputs(reading) == _log_inputs(same.reading) else _log(reading)
    if (varying := _varying(reading)) is not log.varying:
        log = replace(log, varying=varying)
    if queued and reading.long_steps:
        log = replace(log, long_steps=gaps(_long_steps(reading), steps.recent))
    return CachedFigures(
        reading=reading,
        who=before.who if before else slot_figures.who(slot.header, slot.identity, reading.owner),
        compile=same.compile if same else slot_figures.compile_of(slot),
        steps=steps,
        warmups=_warmups(slot, same),
        life=same.life if same and _is_current(same.life, reading) else _life(reading),
        agent=same.agent
        if same and _journal_gaps(reading) == _journal_gaps(same.reading)
        else _agent(reading),
        log=log,
        pauses=same.pauses if same else slot_figures.pauses_of(slot),
        memory=same.memory if same else slot_figures.memory_of(slot),
        worth=same.worth if same else slot_figures.worth_of(slot),
        baseline=before.baseline if before else slot_figures.baseline_of(slot.identity),
        queued=queued,
        last_second=last_second,
    )


def _touched(slot: Slot, same: CachedFigures | None) -> Lengths:
    """``same``: figures with the same compile block, so with the same sum of lengths."""
    if same is not None and slot.compile_bins is same.reading.slot.compile_bins:
        return same.steps.touched
    return lengths(slot.compile_bins, slot.compile.compile_step_sum_ns)


def _warmups(slot: Slot, same: CachedFigures | None) -> Warmups:
    """``same``: as in :func:`_touched`. The first step, and clean ones, change them too."""
    if (
        same is not None
        and bool(slot.steps.steps) == bool(same.reading.slot.steps.steps)
        and slot_figures.warmup_ended(slot) == (same.warmups.latest is not None)
    ):
        return same.warmups
    return slot_figures.warmups_of(slot)


def _is_current(life: Life, reading: RecordReading) -> bool:
    """Whether ``life``, made of the same compile block, is that of ``reading``."""
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
        refusal=reading.refusal,
        killed_at_end=bool(not reading.alive and counts.ended_ns and not counts.end_code),
        signal=_signal(reading),
    )


def _signal(reading: RecordReading) -> str | None:
    """The signal that killed the process; ``None`` if it recorded an exit of its own."""
    if reading.death is None or not reading.death.signal or reading.slot.compile.end_code:
        return None
    return signal_name(reading.death.signal)


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
