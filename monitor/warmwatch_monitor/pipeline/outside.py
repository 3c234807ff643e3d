"""Compile activity of processes below a rank that does not step, which its agent cannot record.

The agent records the compilers that the training starts and waits for with ``subprocess``. A build
by ``os.system``, by a library in C++, or by one that reads the output line by line, shows only in
the processes below the rank. The workers of a DataLoader report what they compile themselves,
and any other child process has a record of its own.
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
from types import MappingProxyType

from msgspec.structs import replace

from warmwatch.shared import record, verdict
from warmwatch.shared.record import (
    KINDS,
    MOST_TOUCHED,
    PHASES,
    CompileCounts,
    Slot,
    StepCounts,
    Warmup,
)
from warmwatch_monitor.model.figures import RankHistory
from warmwatch_monitor.model.machine import WORKING_RATIO, GpuReading, ProcessReading
from warmwatch_monitor.model.records import Outside, RecordReading, is_present, owned
from warmwatch_monitor.pipeline.runs import compiling_children

_PHASE, _KIND = PHASES.index("outside"), KINDS.index("outside")
_SHORT_PAUSE_NS = 5 * 10**9  # between two compilers of one build: the tree is read every 2 s
_SHORTEST_NS = 10**9  # a compiler that ran for a moment is no build that a training waits for


NOTHING = Outside()
_NO_HISTORIES: Mapping[str, RankHistory] = MappingProxyType({})


class OutsideActivity:
    """Adds such activity to the records of each poll. Its state is by folder of the record."""

    def __init__(self) -> None:
        self._last: dict[str, Outside] = {}  # as of the last poll
        self._now: dict[str, Outside] = {}
        # a record and its equivalent, since figures are cached by the object
        self._made: dict[str, tuple[RecordReading, Outside, RecordReading]] = {}

    def of(
        self,
        records: Collection[RecordReading],
        processes: Mapping[int, ProcessReading],
        gpus: Sequence[GpuReading],
        now_ns: int,
        read_ns: int | None = None,
        histories: Mapping[str, RankHistory] = _NO_HISTORIES,
    ) -> list[RecordReading]:
        """``records``, read at ``read_ns``, with it. :meth:`keep` ends the poll.

        ``histories``: what an earlier daemon saw of them.
        """
        self._now = {}
        children = compiling_children(records)
        earlier = {folder: row.outside for folder, row in histories.items() if row.outside}
        compiles = any(process.compiling for process in processes.values()) or any(
            reading.workers and reading.workers.since_ns for reading in records
        )
        if not (self._last or earlier or children or compiles):
            return list(records)
        used, made = owned(records, gpus), []
        read_ns = now_ns if read_ns is None else read_ns
        for reading in records:
            folder = reading.folder
            before = self._before(folder, earlier.get(folder))
            process = None if reading.pid is None else processes.get(reading.pid)
            child = children.get(folder)
            now = follow(before, reading, child, process, used[folder], now_ns, read_ns)
            made.append(reading if now is NOTHING else self._with(reading, now, read_ns))
        return made

    def keep(self, present: Collection[str] | None) -> None:
        """Start the next poll from the last result; ``present`` as for ``is_present``."""
        last = {**self._last, **self._now}
        self._last = {folder: row for folder, row in last.items() if is_present(folder, present)}
        self._made = {folder: row for folder, row in self._made.items() if folder in self._last}

    def _before(self, folder: str, earlier: Outside | None) -> Outside:
        """``earlier``: of an earlier daemon, which this one may read after its first polls."""
        last = self._last.get(folder, NOTHING)
        return earlier if earlier and (last is NOTHING or last.ended < earlier.ended) else last

    def _with(self, reading: RecordReading, now: Outside, read_ns: int) -> RecordReading:
        self._now[reading.folder] = now
        made = self._made.get(reading.folder)
        if made is None or made[0] is not reading or made[1] != now or now.since_ns:
            made = self._made[reading.folder] = reading, now, with_outside(reading, now, read_ns)
        return made[2]


def follow(
    outside: Outside,
    reading: RecordReading,
    child: RecordReading | None,
    process: ProcessReading | None,
    gpus: Sequence[GpuReading],
    now_ns: int,
    read_ns: int,
) -> Outside:
    """``outside`` with the readings of this poll, in which ``reading`` was read at ``read_ns``.

    ``child``: the child process of its rank that compiles.
    """
    slot, steps, counts = reading.slot, reading.slot.steps, reading.slot.compile
    since, seen_ns = _compilers(reading, child, process, read_ns) if reading.alive else (None, 0)
    # what works meanwhile does not wait for a build: it evaluates, or its step is a long one
    works = process is not None and (process.cpu_ratio or 0.0) >= WORKING_RATIO
    works = works or any((gpu.utilization_ratio or 0.0) >= WORKING_RATIO for gpu in gpus)
    goes_on = outside.since_ns and steps.steps == outside.steps and not counts.active_since_ns
    if since is not None and not works:
        if goes_on:
            return replace(outside, seen_ns=max(outside.seen_ns, seen_ns))
        median_ns = record.median_ns(record.recent_lengths(slot.recent))
        began_ns = verdict.outside_since_ns(steps, counts, median_ns, since, now_ns)
        over = _over(outside, reading) if outside.since_ns else outside
        if began_ns:
            began_ns = max(began_ns, slot.header.attached_ns, over.ended_ns)
            if seen_ns - began_ns >= _SHORTEST_NS:
                if over.before[:1] != (steps.steps,):
                    over = replace(over, stretch_ns=began_ns, before_ns=over.total_ns)
                return replace(over, since_ns=began_ns, seen_ns=seen_ns, steps=steps.steps)
    may_go_on = goes_on and reading.alive and now_ns - outside.seen_ns <= _SHORT_PAUSE_NS
    return outside if not outside.since_ns or may_go_on else _over(outside, reading)


def _compilers(
    reading: RecordReading,
    child: RecordReading | None,
    process: ProcessReading | None,
    read_ns: int,
) -> tuple[int | None, int]:
    """Since when compilers run below it, and when they were last seen; ``None`` if none does.

    Workers that compile are among them, and a child process of a rank that steps.
    """
    spans = []
    if reading.workers and reading.workers.since_ns:
        spans.append((reading.workers.since_ns[0], read_ns))
    if child is not None and reading.slot.steps.steps:  # without steps, it may only start its ranks
        spans.append((child.slot.compile.active_since_ns, read_ns))
    compiling = process.compiling if process is not None else None
    if (
        compiling
        and compiling.busy_ns >= reading.slot.compile.last_end_ns
        and compiling.read_ns <= read_ns
    ):
        spans.append((compiling.since_ns, compiling.read_ns))
    if not spans:
        return None, 0
    return min(since for since, _ in spans), max(seen for _, seen in spans)


def _over(outside: Outside, reading: RecordReading) -> Outside:
    """The build in progress is over: with the step that waited for it, or when it was last seen."""
    steps, counts = reading.slot.steps, reading.slot.compile
    until = outside.seen_ns
    if steps.steps == outside.steps + 1:
        until = max(until, steps.last_step_ns)
    elif counts.active_since_ns:
        until = max(outside.since_ns, min(until, counts.active_since_ns))
    took = max(0, until - outside.since_ns)
    return replace(
        outside,
        ended=outside.ended + 1,
        total_ns=outside.total_ns + took,
        longest_ns=max(outside.longest_ns, took),
        since_ns=0,
        began_ns=outside.since_ns,
        ended_ns=until,
        before=(outside.steps, *outside.before)[:MOST_TOUCHED],
    )


def with_outside(reading: RecordReading, outside: Outside, read_ns: int) -> RecordReading:
    """``reading``, read at ``read_ns``, with the activity that its agent could not record.

    Of the build in progress, the time until a compiler was last seen is compile time: if nothing
    more is seen of it, it ends with that.
    """
    if not outside.ended and not outside.since_ns:
        return reading
    slot = reading.slot
    counts = _with_ended(slot.compile, outside, slot.steps, slot.header.warm_steps)
    if outside.since_ns and not counts.active_since_ns:
        counts = counts._replace(
            begun=counts.begun + 1,
            active_since_ns=outside.since_ns,
            active_phase=1 + _PHASE,
            accounted_ns=max(outside.since_ns, read_ns - (outside.seen_ns - outside.since_ns)),
            first_begin_ns=counts.first_begin_ns or outside.since_ns,
            episode_began_ns=counts.episode_began_ns or outside.since_ns,
            episode_began_steps=counts.episode_began_steps or outside.steps,
        )
    counts = _in_stretch(counts, slot, outside)
    waited = {steps + 1 for steps in outside.before}
    long_steps = tuple(step for step in reading.long_steps if step.step not in waited)
    slot = slot._replace(compile=counts)
    return replace(reading, slot=slot, long_steps=long_steps, outside=outside)


def _in_stretch(counts: CompileCounts, slot: Slot, outside: Outside) -> CompileCounts:
    """The counters with its builds since the last step as part of what compiles since then."""
    own, last_step_ns = slot.compile, slot.steps.last_step_ns
    if slot.steps.steps != outside.steps:
        before_ns = own.compiling_before_ns + outside.total_ns
        return counts._replace(compiling_before_ns=before_ns)
    if own.compiling_since_ns > last_step_ns and (slot.steps.steps or own.optimizers):
        since, before_ns = own.compiling_since_ns, own.compiling_before_ns
    else:
        since, before_ns = outside.stretch_ns, sum(own.phase_ns)
    return counts._replace(
        compiling_since_ns=min(since, outside.stretch_ns),
        compiling_before_ns=before_ns + outside.before_ns,
    )


def _with_ended(
    counts: CompileCounts, outside: Outside, steps: StepCounts, warm_steps: int
) -> CompileCounts:
    """The counters with the builds that are over."""
    if not outside.ended:
        return counts
    waited = [before + 1 for before in outside.before if before < steps.steps]
    touched = sorted({*counts.touched_steps, *waited}, reverse=True)
    phases, kinds = list(counts.phase_ns), list(counts.compilations)
    phases[_PHASE] += outside.total_ns
    kinds[_KIND] += outside.ended
    counts = counts._replace(
        begun=counts.begun + outside.ended,
        ended=counts.ended + outside.ended,
        # the step that waited for an activity sees it
        activities_seen=counts.activities_seen + outside.ended - outside.before.count(steps.steps),
        first_begin_ns=counts.first_begin_ns or outside.began_ns,
        last_end_ns=max(counts.last_end_ns, outside.ended_ns),
        longest_activity_ns=max(counts.longest_activity_ns, outside.longest_ns),
        clean_after=max([counts.clean_after, *waited]),
        touched_steps=(*touched, *(0,) * MOST_TOUCHED)[:MOST_TOUCHED],
        phase_ns=tuple(phases),
        compilations=tuple(kinds),
    )
    if outside.ended_ns < counts.last_warmup.ended_ns or counts.active_since_ns:
        return counts  # the agent has recorded a later warm-up
    if verdict.clean_steps(steps, counts) < warm_steps:
        return counts._replace(episode_began_ns=counts.episode_began_ns or outside.began_ns)
    warmup = Warmup(outside.began_ns, outside.ended_ns, outside.ended_ns, 1)
    return counts._replace(
        warmups=max(1, counts.warmups),
        first_warmup=counts.first_warmup if counts.warmups else warmup,
        last_warmup=warmup,
        episode_began_ns=0,
        episode_began_steps=0,
    )
