"""Compile activity of processes below a rank that does not step, which its agent cannot record.

The agent records the compilers that the training starts and waits for with ``subprocess``. A build
by ``os.system``, by a library in C++, or by one that reads the output line by line, shows only in
the processes below the rank. The workers of a DataLoader report what they compile themselves.
PyTorch's compile workers, and the compilers that they start, are none of these: the agent records
what waits for them.

The process tree is read less often than the slot, and a compiler of activity that the agent has
recorded may be in it still. So a reading counts if the compiler was busy after the end of that
activity, and the slot, read later than the tree, shows no new one.
:func:`follow` turns these readings into an :class:`Outside` for each record, and
:func:`with_outside` adds it to the counters of the slot, as if the agent had recorded it. So
verdict, figures and sentences have one input, and no second rule for such activity. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared import record, verdict
from warmwatch.shared.record import KINDS, MOST_TOUCHED, PHASES, CompileCounts, Warmup
from warmwatch_monitor.model import GpuReading, ProcessReading, RecordReading
from warmwatch_monitor.model.machine import WORKING_RATIO
from warmwatch_monitor.pipeline.energy import is_present
from warmwatch_monitor.pipeline.runs import owned

_PHASE, _KIND = PHASES.index("outside"), KINDS.index("outside")
_SHORT_PAUSE_NS = 5 * 10**9  # between two compilers of one build: the tree is read every 2 s
_SHORTEST_NS = 10**9  # a compiler that ran for a moment is no build that a training waits for


class Outside(Struct, frozen=True, kw_only=True):
    """What the process tree has shown of one record so far.

    Attributes:
        ended: builds that are over. total_ns: their length. longest_ns: of the longest.
        since_ns: begin of the build in progress; 0 if there is none. seen_ns: when a busy compiler
        was last seen, without activity of the rank's own. began_ns, ended_ns: of the last one that
        is over.
        steps: the number of steps at its time. before: for each build that is over, the steps
        before it, newest first.
    """

    ended: int = 0
    total_ns: int = 0
    longest_ns: int = 0
    since_ns: int = 0
    seen_ns: int = 0
    began_ns: int = 0
    ended_ns: int = 0
    steps: int = 0
    before: tuple[int, ...] = ()


NOTHING = Outside()


class OutsideActivity:
    """Adds such activity to the records of each poll."""

    def __init__(self) -> None:
        self._known: dict[str, Outside] = {}
        # by folder: a record and its equivalent, since figures are cached by the object
        self._made: dict[str, tuple[RecordReading, Outside, RecordReading]] = {}

    def of(
        self,
        records: Collection[RecordReading],
        processes: Mapping[int, ProcessReading],
        gpus: Sequence[GpuReading],
        now_ns: int,
        present: Collection[str] | None,
        read_ns: int | None = None,
    ) -> list[RecordReading]:
        """``records``, read at ``read_ns``, with it.

        ``present``: the existing records, ``None`` if not known.
        """
        compile = any(one.compiling for one in processes.values()) or any(
            one.workers and one.workers.since_ns for one in records
        )
        if not self._known and not compile:
            return list(records)
        used = owned(records, gpus)
        self._known = {k: v for k, v in self._known.items() if is_present(k, present)}
        self._made = {k: v for k, v in self._made.items() if k in self._known}
        times = now_ns, now_ns if read_ns is None else read_ns
        return [self._one(one, processes, used[one.folder], *times) for one in records]

    def _one(
        self,
        one: RecordReading,
        processes: Mapping[int, ProcessReading],
        gpus: Sequence[GpuReading],
        now_ns: int,
        read_ns: int,
    ) -> RecordReading:
        process = None if one.pid is None else processes.get(one.pid)
        median = record.median_ns(record.recent_lengths(one.slot.recent))
        known = self._known.get(one.folder, NOTHING)
        now = follow(known, one, process, gpus, median, now_ns, read_ns)
        if now is NOTHING:
            return one
        self._known[one.folder] = now
        made = self._made.get(one.folder)
        if made is None or made[0] is not one or made[1] != now or now.since_ns:
            made = self._made[one.folder] = one, now, with_outside(one, now, read_ns)
        return made[2]


def follow(
    known: Outside,
    one: RecordReading,
    process: ProcessReading | None,
    gpus: Sequence[GpuReading],
    median_step_ns: float | None,
    now_ns: int,
    read_ns: int,
) -> Outside:
    """``known`` with the readings of this poll, in which ``one`` was read at ``read_ns``."""
    steps, counts = one.slot.steps, one.slot.compile
    since, seen_ns = _compilers(one, process, read_ns) if one.alive else (None, 0)
    # what works meanwhile does not wait for a build: it evaluates, or its step is a long one
    works = process is not None and (process.cpu_ratio or 0.0) >= WORKING_RATIO
    works = works or any((gpu.utilization_ratio or 0.0) >= WORKING_RATIO for gpu in gpus)
    goes_on = known.since_ns and steps.steps == known.steps and not counts.active_since_ns
    if since is not None and not works:
        if goes_on:
            return replace(known, seen_ns=max(known.seen_ns, seen_ns))
        begun = verdict.outside_since_ns(steps, counts, median_step_ns, since, now_ns)
        over = _over(known, one) if known.since_ns else known
        begun = begun and max(begun, one.slot.header.attached_ns, over.ended_ns)
        if begun and seen_ns - begun >= _SHORTEST_NS:
            return replace(over, since_ns=begun, seen_ns=seen_ns, steps=steps.steps)
    if not known.since_ns or (goes_on and one.alive and now_ns - known.seen_ns <= _SHORT_PAUSE_NS):
        return known
    return _over(known, one)


def _compilers(
    one: RecordReading, process: ProcessReading | None, read_ns: int
) -> tuple[int | None, int]:
    """Since when compilers run below it, and when they were last seen; ``None`` if none does.

    Workers that compile are among them.
    """
    found = [(since, read_ns) for since in (one.workers.since_ns[:1] if one.workers else ())]
    known = process.compiling if process is not None else None
    if known and known.busy_ns >= one.slot.compile.last_end_ns and known.read_ns <= read_ns:
        found.append((known.since_ns, known.read_ns))
    if not found:
        return None, 0
    return min(since for since, _ in found), max(seen for _, seen in found)


def _over(known: Outside, one: RecordReading) -> Outside:
    """The build in progress is over: with the step that waited for it, or when it was last seen."""
    steps, counts = one.slot.steps, one.slot.compile
    until = known.seen_ns
    if steps.steps == known.steps + 1:
        until = max(until, steps.last_step_ns)
    elif counts.active_since_ns:
        until = max(known.since_ns, min(until, counts.active_since_ns))
    took = max(0, until - known.since_ns)
    return replace(
        known,
        ended=known.ended + 1,
        total_ns=known.total_ns + took,
        longest_ns=max(known.longest_ns, took),
        since_ns=0,
        began_ns=known.since_ns,
        ended_ns=until,
        before=(known.steps, *known.before)[:MOST_TOUCHED],
    )


def with_outside(one: RecordReading, outside: Outside, read_ns: int) -> RecordReading:
    """``one``, read at ``read_ns``, with the activity that its agent could not record.

    Of the build in progress, the time until a compiler was last seen is compile time: if nothing
    more is seen of it, it ends with that.
    """
    if not outside.ended and not outside.since_ns:
        return one
    slot = one.slot
    counts = _with_ended(slot.compile, outside, slot.steps.steps, slot.header.warm_steps)
    if outside.since_ns and not counts.active_since_ns:
        counts = counts._replace(
            begun=counts.begun + 1,
            active_since_ns=outside.since_ns,
            active_phase=1 + _PHASE,
            accounted_ns=max(outside.since_ns, read_ns - (outside.seen_ns - outside.since_ns)),
            first_begin_ns=counts.first_begin_ns or outside.since_ns,
            compiling_since_ns=outside.since_ns,
            episode_began_ns=counts.episode_began_ns or outside.since_ns,
            episode_began_steps=counts.episode_began_steps or outside.steps,
        )
    held = {before + 1 for before in outside.before}
    long_steps = tuple(step for step in one.long_steps if step.step not in held)
    return replace(one, slot=slot._replace(compile=counts), long_steps=long_steps)


def _with_ended(counts: CompileCounts, outside: Outside, steps: int, k: int) -> CompileCounts:
    """The counters with the builds that are over."""
    if not outside.ended:
        return counts
    held = [before + 1 for before in outside.before if before < steps]
    clean_after = max([counts.clean_after, *held])
    touched = sorted({*counts.touched_steps, *held}, reverse=True)
    phases, kinds = list(counts.phase_ns), list(counts.compilations)
    phases[_PHASE] += outside.total_ns
    kinds[_KIND] += outside.ended
    counts = counts._replace(
        begun=counts.begun + outside.ended,
        ended=counts.ended + outside.ended,
        # the activity is seen by the step that waited for it
        activities_seen=counts.activities_seen + _seen(outside, steps),
        first_begin_ns=counts.first_begin_ns or outside.began_ns,
        last_end_ns=max(counts.last_end_ns, outside.ended_ns),
        longest_activity_ns=max(counts.longest_activity_ns, outside.longest_ns),
        clean_after=clean_after,
        touched_steps=(*touched, *(0,) * MOST_TOUCHED)[:MOST_TOUCHED],
        phase_ns=tuple(phases),
        compilations=tuple(kinds),
    )
    if outside.ended_ns < counts.last_warmup.ended_ns or counts.active_since_ns:
        return counts  # the agent has recorded a later warm-up
    if steps - clean_after < k:
        since = counts.episode_began_ns or outside.began_ns
        return counts._replace(episode_began_ns=since)
    warmup = Warmup(outside.began_ns, outside.ended_ns, outside.ended_ns, 1)
    return counts._replace(
        warmups=max(1, counts.warmups),
        first_warmup=counts.first_warmup if counts.warmups else warmup,
        last_warmup=warmup,
        episode_began_ns=0,
        episode_began_steps=0,
    )


def _seen(outside: Outside, steps: int) -> int:
    """The builds that a step has followed: all but the last, until a step is marked."""
    return outside.ended if steps > outside.before[0] else outside.ended - 1
