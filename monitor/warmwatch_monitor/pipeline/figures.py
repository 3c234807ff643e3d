"""The figures of a record at one moment: cached figures, and those that depend on the clock."""

from __future__ import annotations

from msgspec.structs import replace

from warmwatch.shared import verdict
from warmwatch.shared.record import PHASES
from warmwatch.shared.record.recent import gap_ns, marks_ns
from warmwatch.shared.verdict import ENDED, Facts, Judgement
from warmwatch_monitor.model import (
    Compile,
    Figures,
    OpenActivity,
    Pauses,
    ProcessReading,
    Progress,
    RecordReading,
    Warmups,
    Workers,
)
from warmwatch_monitor.pipeline.cached_figures import cached_figures, up_to_now
from warmwatch_monitor.pipeline.slot_figures import by_phase, counted_of, epoch, seconds


def figures(
    reading: RecordReading,
    facts: Facts,
    judgement: Judgement,
    now_ns: int,
    process: ProcessReading | None = None,
) -> Figures:
    """The figures of ``reading`` at ``now_ns``, given the verdict from its ``facts``."""
    known = cached_figures(reading)
    return Figures(
        who=known.who,
        steps=known.steps,
        compile=_compile(known.compile, reading, judgement, now_ns),
        warmups=_warmups(known.warmups, facts),
        progress=_progress(reading, facts, judgement, now_ns),
        life=known.life,
        agent=known.agent,
        log=up_to_now(known.log, reading),
        pauses=_pauses(reading, judgement, now_ns),
        workers=_workers(process),
        memory=known.memory,
        worth=known.worth,
        baseline=known.baseline,
    )


def _progress(reading: RecordReading, facts: Facts, judgement: Judgement, now_ns: int) -> Progress:
    slot = reading.slot
    stepped = slot.steps.last_step_ns if judgement.state not in ENDED else 0
    return Progress(
        quiet_seconds=max(0, now_ns - verdict.quiet_since_ns(facts)) / 1e9,
        state_since=epoch(slot.header, judgement.since_ns),
        compiler_quiet_seconds=_ago(slot.compile.last_end_ns, now_ns),
        stall_limit_seconds=verdict.stall_after_ns(facts) / 1e9,
        batch_quiet_seconds=_ago(slot.steps.last_batch_ns, now_ns),
        open_seconds=_ago(verdict.open_since_ns(facts), now_ns),
        compile_limit_seconds=seconds(verdict.compile_limit_ns(facts)),
        compile_precedent_seconds=seconds(verdict.compile_precedent_ns(facts)),
        last_step_age_seconds=_ago(stepped, max(now_ns, stepped)),
        gap_seconds=_since_gap(reading, facts.usual_step_ns, now_ns) if stepped else None,
    )


_GAP_NS, _GAP_STEPS = 5 * 10**8, 4
_GAP_AGO_NS = 10 * 10**9


def _since_gap(reading: RecordReading, usual_ns: float | None, now_ns: int) -> float | None:
    """Seconds since the last step after a gap, in which the GPUs may have been idle."""
    if not usual_ns:
        return None
    gap, last = max(_GAP_NS, _GAP_STEPS * usual_ns), reading.slot.steps.last_step_ns
    if now_ns - last > gap:
        return 0.0
    for at, word in marks_ns(reading.slot.recent, last):
        if now_ns - at > _GAP_AGO_NS:
            return None
        if gap_ns(word) > gap:
            return max(0, now_ns - at) / 1e9
    return None


def _pauses(reading: RecordReading, judgement: Judgement, now_ns: int) -> Pauses:
    """Pauses. A save that an unclean end interrupted lasts until that end: no figure shrinks."""
    slot, counts, missing = reading.slot, reading.slot.compile, reading.slot.identity.missing
    living = judgement.state not in ENDED
    until = now_ns if living else counts.ended_ns or reading.gone_ns or 0

    def open_ns(since: int) -> int:
        return max(0, until - since) if since else 0

    save = verdict.saving_since_ns(slot.steps, counts)
    evaluation = verdict.evaluating_since_ns(slot.steps, counts)
    cells = verdict.between_cells_since_ns(slot.steps, counts)
    reported = bool(counts.evaluations or evaluation)
    return Pauses(
        saving_seconds=None if "saving" in missing else (counts.saving_ns + open_ns(save)) / 1e9,
        saving_since=epoch(slot.header, save) if living else None,
        saving_for_seconds=open_ns(save) / 1e9 if save and living else None,
        evaluating_seconds=(counts.evaluating_ns + open_ns(evaluation)) / 1e9 if reported else None,
        evaluating_since=epoch(slot.header, evaluation) if living else None,
        evaluating_for_seconds=open_ns(evaluation) / 1e9 if evaluation and living else None,
        evaluations=counts.evaluations if reported else None,
        evaluation_batch_seconds=(
            counts.evaluation_batches_ns / 1e9 / counts.evaluation_batches
            if counts.evaluation_batches
            else None
        ),
        between_cells_since=epoch(slot.header, cells) if living else None,
        between_cells_for_seconds=open_ns(cells) / 1e9 if cells and living else None,
    )


def _ago(then_ns: int | None, now_ns: int) -> float | None:
    """Seconds since a moment of the record, where 0 is "never"."""
    return (now_ns - then_ns) / 1e9 if then_ns else None


def _compile(
    compile: Compile, reading: RecordReading, judgement: Judgement, now_ns: int
) -> Compile:
    """With the activity in progress.

    Activity that an unclean end interrupted lasts until that end: no figure shrinks.
    """
    slot, counts = reading.slot, reading.slot.compile
    living = judgement.state not in ENDED
    until = now_ns if living else counts.ended_ns or reading.gone_ns or 0
    if since := counts.background_since_ns:
        took = max(0, until - since) / 1e9
        compile = replace(
            compile,
            background_since=compile.background_since if living else None,
            background_seconds=compile.background_seconds + took,
            background_for_seconds=took if living else None,
        )
    if not counts.active_since_ns:
        return compile
    phase = PHASES[counts.active_phase - 1] if counts.active_phase else None
    open_ns = max(0, until - counts.accounted_ns)
    return replace(
        compile,
        seconds=(sum(counts.phase_ns) + open_ns) / 1e9,
        phase_seconds=by_phase(counts, open_ns, phase or "other"),
        open=OpenActivity(
            began_at=slot.header.epoch_seconds(counts.active_since_ns),
            seconds=max(0, until - counts.active_since_ns) / 1e9,
            phase=phase,
            counted=counted_of(counts) if living else None,
        ),
    )


def _warmups(warmups: Warmups, facts: Facts) -> Warmups:
    if not facts.earlier_warmups_ns:
        return warmups
    return replace(warmups, earlier_seconds=tuple(ns / 1e9 for ns in facts.earlier_warmups_ns))


def _workers(process: ProcessReading | None) -> Workers | None:
    if process is None or process.workers_busy is None or process.workers_idle is None:
        return None
    return Workers(busy=process.workers_busy, idle=process.workers_idle)
