"""From one record to the figures of its rank: clocks, units and names. Pure.

The record's words are monotonic nanoseconds in which 0 is "not yet"; here that ends. What a slot
says by itself is kept from look to look, so that a rank costs what moves in it and no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from warmwatch import record, verdict
from warmwatch.record import (
    CACHES,
    CATEGORIES,
    ENDS,
    KINDS,
    PHASES,
    CompileCounts,
    Header,
    Identity,
    Slot,
    Warmup,
)
from warmwatch.verdict import ENDED, Facts, Judgement
from warmwatch_monitor.model import (
    BUCKET_SECONDS,
    Agent,
    Compile,
    Figures,
    Lengths,
    Life,
    Log,
    OpenActivity,
    ProcessReading,
    Progress,
    RecordReading,
    Steps,
    Warmups,
    WarmupSpan,
    Who,
    Workers,
)

_KEPT = 1024
_AT_RUN_TIME = frozenset({"autotune", "cudagraph", "other"})  # kinds of a seam of their own
# the fine bin that ends where each bucket does
_LAST_BINS = tuple(record.BOUNDS_NS.index(round(end * 1e9)) for end in BUCKET_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binned:
    """What a histogram of step lengths amounts to, in the record's nanoseconds."""

    upto: tuple[int, ...]
    count: int
    median_ns: float | None
    p99_ns: float | None
    longest_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What one record's slot says whatever the clock says: made once for each slot."""

    slot: Slot
    who: Who
    clean: Binned
    touched: Binned
    compile: Compile
    steps: Steps
    warmups: Warmups


_kept: dict[str, Kept] = {}


def kept(reading: RecordReading) -> Kept:
    """That of ``reading``, made anew for what has changed since the record was last looked at.

    The source and the unpacking give the same object for what is the same, so identity tells.
    """
    before = _kept.pop(reading.folder, None)
    if before is None or before.slot is not reading.slot:
        before = _make(reading.slot, before)
    _kept[reading.folder] = before
    if len(_kept) > _KEPT:
        del _kept[next(iter(_kept))]  # the one that nobody has asked for for longest
    return before


def _make(slot: Slot, before: Kept | None) -> Kept:
    old = before.slot if before else None
    known = old is not None and (old.header, old.identity) == (slot.header, slot.identity)
    same = before if known and old is not None and old.compile is slot.compile else None
    still = before if old is not None and old.compile_bins == slot.compile_bins else None
    clean = _binned(slot.clean_bins)
    touched = still.touched if still else _binned(slot.compile_bins)
    return Kept(
        slot=slot,
        who=before.who if before and known else _who(slot.header, slot.identity),
        clean=clean,
        touched=touched,
        compile=same.compile if same else _compile(slot),
        steps=_steps(slot, clean, touched),
        warmups=_warmups(slot),
    )


def _binned(bins: Sequence[int]) -> Binned:
    upto = tuple(accumulate(bins))
    return Binned(
        upto=tuple([upto[last] for last in _LAST_BINS]),
        count=upto[-1],
        median_ns=record.quantile_of(upto, 0.5),
        p99_ns=record.quantile_of(upto, 0.99),
        longest_ns=record.longest_of(upto),
    )


def figures(
    reading: RecordReading,
    facts: Facts,
    judgement: Judgement,
    now_ns: int,
    process: ProcessReading | None = None,
) -> Figures:
    """The figures of ``reading`` at ``now_ns``, given what the verdict made of its ``facts``."""
    slot, header, counts = reading.slot, reading.slot.header, reading.slot.compile
    known = kept(reading)
    return Figures(
        who=known.who,
        steps=known.steps,
        compile=_compile_now(known.compile, reading, judgement, now_ns),
        warmups=known.warmups,
        progress=Progress(
            quiet_seconds=max(0, now_ns - verdict.quiet_since_ns(facts)) / 1e9,
            state_since=_epoch(header, judgement.since_ns),
            compiler_quiet_seconds=(
                (now_ns - counts.last_end_ns) / 1e9 if counts.last_end_ns else None
            ),
            stall_limit_seconds=verdict.stall_after_ns(facts) / 1e9,
        ),
        life=_life(reading),
        agent=Agent(
            version=slot.identity.agent or None,
            missing=slot.identity.missing,
            errors=counts.agent_errors,
            lines_dropped=counts.journal_dropped,
            lines_broken=reading.broken_lines,
        ),
        log=_log(reading),
        workers=_workers(process),
    )


def _who(header: Header, identity: Identity) -> Who:
    return Who(
        run=identity.run,
        rank=identity.rank,
        world_size=identity.world_size,
        attached_at=_epoch(header, header.attached_ns),
        attempt=identity.attempt,
        host=identity.host or None,
        launcher=identity.launcher or None,
        python=identity.python or None,
        torch=identity.torch or None,
        gpus=identity.gpus,
    )


def _steps(slot: Slot, clean: Binned, touched: Binned) -> Steps:
    header, counts, steps = slot.header, slot.compile, slot.steps
    return Steps(
        count=steps.steps,
        first_at=_epoch(header, counts.first_step_ns),
        last_at=_epoch(header, steps.last_step_ns),
        first_seconds=_seconds(counts.first_duration_ns),
        last_seconds=_seconds(steps.last_duration_ns),
        clean=_lengths(clean, slot.clean_sum_ns),
        touched=_lengths(touched, counts.compile_step_sum_ns),
        touched_lately=len(verdict.recently_touched(steps, counts)),
        tokens=slot.tokens,
        samples=slot.samples,
        batches=None if "batches" in slot.identity.missing else steps.batches,
        batch_wait_seconds=(
            None if "batches" in slot.identity.missing else steps.batch_wait_ns / 1e9
        ),
        last_batch_at=_epoch(header, steps.last_batch_ns),
    )


def _lengths(binned: Binned, sum_ns: int) -> Lengths:
    return Lengths(
        count=binned.count,
        sum_seconds=sum_ns / 1e9,
        upto=binned.upto,
        median=_seconds(binned.median_ns),
        p99=_seconds(binned.p99_ns),
    )


def _compile_now(
    compile: Compile, reading: RecordReading, judgement: Judgement, now_ns: int
) -> Compile:
    """A process that died while it compiled did so until its end was seen: no figure shrinks."""
    slot, counts = reading.slot, reading.slot.compile
    if not counts.active_since_ns:
        return compile
    living = judgement.state not in ENDED
    until = now_ns if living else counts.ended_ns or reading.gone_ns or 0
    phase = PHASES[counts.active_phase - 1] if counts.active_phase else None
    open_ns = max(0, until - counts.accounted_ns)
    return replace(
        compile,
        seconds=(sum(counts.phase_ns) + open_ns) / 1e9,
        phase_seconds=_by_phase(counts, open_ns, phase or "other"),
        open=OpenActivity(
            began_at=slot.header.epoch_seconds(counts.active_since_ns),
            seconds=max(0, until - counts.active_since_ns) / 1e9,
            phase=phase,
        ),
    )


def _by_phase(counts: CompileCounts, open_ns: int = 0, phase: str = "") -> Mapping[str, float]:
    pairs = zip(PHASES, counts.phase_ns, strict=True)
    return {name: (ns + open_ns * (name == phase)) / 1e9 for name, ns in pairs}


def _compile(slot: Slot) -> Compile:
    counts, missing = slot.compile, slot.identity.missing
    compile = Compile(
        begun=counts.begun > 0,
        last_end_at=_epoch(slot.header, counts.last_end_ns),
        seconds=sum(counts.phase_ns) / 1e9,
        phase_seconds=_by_phase(counts),
        fallbacks=None if "recompile_limit" in missing else counts.fallbacks,
    )
    if "compilations" in missing:
        return compile
    kinds = [k for k in KINDS if "runtime_compilations" not in missing or k not in _AT_RUN_TIME]
    by_kind = _by_name(KINDS, counts.compilations)
    return replace(
        compile,
        compilations={kind: by_kind[kind] for kind in kinds},
        recompiles=_by_name(CATEGORIES, counts.recompiles),
        graphs=counts.graphs,
        graphs_before=counts.graphs_before,
        graph_breaks=counts.graph_breaks,
        failures=counts.failures,
        recompiles_after_warm=counts.recompiles_after_warm,
        cache_hits=_by_name(CACHES, counts.cache_hits),
        cache_misses=_by_name(CACHES, counts.cache_misses),
    )


def _log(reading: RecordReading) -> Log:
    began_ns = reading.slot.compile.episode_began_ns
    since = (c for c in reading.compilations if began_ns and c.at_ns >= began_ns)
    return Log(
        compilations=reading.compilations,
        fallbacks=reading.fallbacks,
        reopened_by=next((c for c in since if c.reason), None),
    )


def _warmups(slot: Slot) -> Warmups:
    header, counts = slot.header, slot.compile
    return Warmups(
        clean_steps_needed=header.warm_steps,
        latest=_latest(slot),
        first=_span(header, counts.first_warmup) if counts.warmups else None,
        count=counts.warmups,
        warm_at_step=counts.clean_after + header.warm_steps,
    )


def _latest(slot: Slot) -> WarmupSpan | None:
    """The latest warm-up where it has ended and nothing has begun since.

    Between the K-th clean mark and the entry of the warm-up that it ended, a reader finds the
    entry of an earlier one: that is not the answer either.
    """
    counts, warmup = slot.compile, slot.compile.last_warmup
    if not counts.warmups or verdict.clean_steps(slot.steps, counts) < slot.header.warm_steps:
        return None
    ended = warmup.ended_ns and warmup.ended_ns >= counts.last_end_ns
    return _span(slot.header, warmup) if ended else None


def _span(header: Header, warmup: Warmup) -> WarmupSpan:
    return WarmupSpan(
        ended_at=header.epoch_seconds(warmup.ended_ns),
        seconds=(warmup.ended_ns - warmup.began_ns) / 1e9,
        steps=warmup.steps,
    )


def _workers(process: ProcessReading | None) -> Workers | None:
    if process is None or process.workers_busy is None or process.workers_idle is None:
        return None
    return Workers(busy=process.workers_busy, idle=process.workers_idle)


def _by_name(names: Sequence[str], counts: Sequence[int]) -> dict[str, int]:
    return dict(zip(names, counts, strict=True))


def _life(reading: RecordReading) -> Life:
    counts = reading.slot.compile
    return Life(
        alive=reading.alive,
        pid=reading.pid,
        end=ENDS[counts.end_code] or None,
        exit_code=counts.exit_code - 1 if counts.exit_code else None,
    )


def _epoch(header: Header, monotonic_ns: int | None) -> float | None:
    return header.epoch_seconds(monotonic_ns) if monotonic_ns else None


def _seconds(ns: float | None) -> float | None:
    """Nanoseconds of the record, where 0 is "not known", in seconds."""
    return ns / 1e9 if ns else None
