"""A slot's blocks as figures in public units, independent of the clock. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from warmwatch.shared import record, verdict
from warmwatch.shared.fallbacks import DISABLED as SKIPPED
from warmwatch.shared.fallbacks import FLEX, LIMIT
from warmwatch.shared.record import (
    CACHES,
    CATEGORIES,
    DISABLED,
    KINDS,
    MEMORY,
    NEW_INSTANCE,
    PHASES,
    PRECOMPILED,
    PROGRESS,
    CompileCounts,
    Header,
    Identity,
    Slot,
    Warmup,
)
from warmwatch.shared.record.recent import FEWEST, departure, launch_ns
from warmwatch.shared.values import PLAIN, hashed
from warmwatch_monitor.figures.compile import CacheUse, Compile, Counted, with_totals
from warmwatch_monitor.figures.declared import Figure, figures
from warmwatch_monitor.figures.training import EagerSteps, Pauses, WarmupSpan
from warmwatch_monitor.model.budgets import GPUS_OF_A_RANK
from warmwatch_monitor.model.figures import EAGER_CODE, Lengths, Memory, Steps, Warmups, Who, Worth
from warmwatch_monitor.model.records import Owner
from warmwatch_monitor.pipeline.clean_steps import LastSecond, QueuedSteps


def lengths(bins: Sequence[int], sum_ns: int) -> Lengths:
    """The figures of ``bins``, whose steps took ``sum_ns`` in total."""
    upto = tuple(accumulate(bins))
    return Lengths(
        count=upto[-1],
        sum_seconds=sum_ns / 1e9,
        median=seconds(record.quantile_of(upto, 0.5)),
        longest=seconds(record.longest_of(upto)),
        bins=bins,
    )


def seconds(ns: float | None) -> float | None:
    """Nanoseconds of the record, where 0 is "not known", in seconds."""
    return ns / 1e9 if ns else None


def epoch(header: Header, monotonic_ns: int | None) -> float | None:
    """Seconds since the epoch, for a monotonic time in which 0 is "not yet"."""
    return header.epoch_seconds(monotonic_ns) if monotonic_ns else None


def who(header: Header, identity: Identity, owner: Owner | None = None) -> Who:
    return Who(
        run=identity.run,
        rank=identity.rank,
        name=owner.plain(identity.run) if owner else identity.run,
        owner=owner.name if owner else None,
        owner_uid=owner.uid if owner else None,
        world_size=identity.world_size,
        launch=_launch_id(identity) if identity.launch else None,
        expected_ranks=identity.expected_ranks,
        attached_at=epoch(header, header.attached_ns),
        attempt=identity.attempt,
        host=identity.host or None,
        launcher=identity.launcher or None,
        python=identity.python or None,
        torch=identity.torch or None,
        reported_gpus=identity.gpus[:GPUS_OF_A_RANK],
        collective_timeout_seconds=identity.collective_timeout,
        collective_backend=identity.collective_backend or None,
        labels=identity.labels,
    )


def _launch_id(identity: Identity) -> str:
    start = f"{identity.host} {identity.launch} {identity.attempt}"
    return hashed(start.encode(), size=4).hexdigest()


def steps_of(
    slot: Slot,
    clean: Lengths,
    touched: Lengths,
    recent: Sequence[int],
    queued: QueuedSteps | None = None,
    last_second: LastSecond | None = None,
) -> Steps:
    """Steps from the hot block and the histograms of step lengths.

    ``recent``: the lengths that determine the recent speed. ``queued``: with GPUs.
    """
    header, counts, steps = slot.header, slot.compile, slot.steps
    reports_batches = "batches" not in slot.identity.missing
    recent_ns = queued.step_ns if queued else record.level_ns(recent)
    has_lengths = any(slot.recent) or 0 < steps.steps <= FEWEST  # the first steps may have none
    unsettled = slot.unsettled if has_lengths else None
    trend = unsettled if isinstance(unsettled, record.Trend) else None
    launch = launch_ns(recent) if queued else None
    waits = bool(recent_ns and launch and recent_ns > record.UNEQUAL * launch)
    if waits:
        trend = None  # of launches, or of waits
    departed = departure(slot.recent, recent_ns, waits=waits) if recent_ns and has_lengths else None
    if departed:  # all of them are of a mixture: the newest are the speed so far
        trend, unsettled = departed, True
        recent_ns, recent = departed.newest_ns, recent[: departed.steps]
    elif recent_ns and unsettled is False and queued and (trend := queued.departure()):
        unsettled = True
    return Steps(
        count=steps.steps,
        first_at=epoch(header, counts.first_step_ns),
        last_at=epoch(header, steps.last_step_ns),
        first=seconds(counts.first_duration_ns),
        before_first_compile_seconds=seconds(counts.before_first_step_ns),
        last=seconds(steps.last_duration_ns),
        last_second=last_second.mean_seconds if last_second else None,
        recent=seconds(recent_ns) if recent else None,
        recent_steps=len(recent) or None,
        averaged=not (queued or departed) and recent_ns != record.median_ns(recent),
        settled=None if unsettled is None else not unsettled,
        newest=seconds(trend.newest_ns) if trend else None,
        newest_steps=trend.steps if trend else None,
        trend=("faster" if trend.faster else "slower") if trend else None,
        clean=clean,
        touched=touched,
        touched_lately=len(verdict.recently_touched(steps, counts)),
        repeated=counts.repeated if verdict.repeats(steps, counts, header.warm_steps) else 0,
        tokens=slot.tokens,
        samples=slot.samples,
        batches=steps.batches if reports_batches else None,
        batch_wait_seconds=steps.batch_wait_ns / 1e9 if reports_batches else None,
        last_batch_at=epoch(header, steps.last_batch_ns),
        optimizer=_has_optimizer(slot),
    )


def _has_optimizer(slot: Slot) -> bool | None:
    """Whether the process made an optimizer; ``None`` if the agent does not report it."""
    if slot.compile.optimizers:
        return True
    reported = slot.compile.quiet_ns and "optimizer" not in slot.identity.missing
    return False if reported else None


def by_phase(counts: CompileCounts, open_ns: int = 0, phase: str = "") -> Mapping[str, float]:
    """Seconds of each phase, with those of the activity in progress, which is in ``phase``."""
    pairs = zip(PHASES, counts.phase_ns, strict=True)
    return {name: (ns + open_ns * (name == phase)) / 1e9 for name, ns in pairs}


_PLAIN = {name: at for at, name in enumerate(PLAIN)}
_AT_RUN_TIME = frozenset({"autotune", "cudagraph", "other"})  # kinds with their own hook point


def compile_of(slot: Slot) -> Compile:
    """The compile block, without the activity in progress."""
    counts, missing = slot.compile, frozenset(slot.identity.missing)

    def if_reported(name: str, value: Any) -> Any:
        """``None`` for a figure whose hook points this torch does not have."""
        return None if missing.intersection(figures(Compile)[name].needs) else value

    kinds = dict(zip(KINDS, counts.compilations, strict=True))
    if "runtime_compilations" in missing:
        kinds = {kind: count for kind, count in kinds.items() if kind not in _AT_RUN_TIME}
    categories = dict(zip(CATEGORIES, counts.recompiles_by_category, strict=True))
    caches = zip(CACHES, counts.cache_hits, counts.cache_misses, strict=True)
    evaluated = "disabled" not in missing and counts.evaluations
    return Compile(
        **{
            name: if_reported(name, _value(figure, _counter(counts, figure.counter)))
            for name, figure in figures(Compile).items()
            if figure.counter
        },
        **with_totals(
            compilations_by_kind=if_reported("compilations_by_kind", kinds),
            recompiles_by_category=if_reported(
                "recompiles_by_category",
                {**categories, NEW_INSTANCE: _counter(counts, "new_instances")},
            ),
            fallbacks_by_cause=if_reported("fallbacks_by_cause", _fallbacks_by_cause(counts)),
        ),
        caches=if_reported(
            "caches", {cache: CacheUse(hits=hits, misses=misses) for cache, hits, misses in caches}
        ),
        begun=counts.begun > 0,
        last_end_at=epoch(slot.header, counts.last_end_ns),
        seconds=sum(counts.phase_ns) / 1e9,
        disabled=DISABLED[counts.disabled] or None,
        disabled_since_step=counts.disabled_since_steps if counts.disabled else None,
        eager_calls_since=counts.eager_calls_since or None,
        refused_calls_since=counts.refused_calls_since or None,
        on_recompile_calls_since=counts.on_recompile_calls_since or None,
        uncompiled_evaluations=counts.uncompiled_evaluations if evaluated else None,
        background_since=epoch(slot.header, counts.background_since_ns),
        precompiled=tuple(
            kind for bit, kind in enumerate(PRECOMPILED) if counts.precompiled >> bit & 1
        ),
    )


def _fallbacks_by_cause(counts: CompileCounts) -> Mapping[str, int]:
    others = {FLEX: counts.unfused, SKIPPED: counts.skipped}
    # at least 0: a damaged record may hold any numbers
    return {LIMIT: max(0, counts.fallbacks - sum(others.values())), **others}


def _counter(counts: CompileCounts, name: str) -> Any:
    """A field of the compile block, or one of ``PLAIN``."""
    return counts.plain[_PLAIN[name]] if name in _PLAIN else getattr(counts, name)


def _value(figure: Figure, counted: Any) -> Any:
    """A counter of the compile block in the unit of its figure."""
    if figure.label:
        return {name: ns / 1e9 for name, ns in zip(figure.values, counted, strict=True)}
    return counted / 1e9 if figure.counter.endswith("_ns") else counted


def counted_of(counts: CompileCounts) -> Counted | None:
    """How much of the activity in progress is done; ``None`` if that is not counted."""
    if not counts.progress_of:
        return None
    what = PROGRESS[counts.progress_of - 1]
    return Counted(of=what, done=counts.progress_done, total=counts.progress_total)


def pauses_of(slot: Slot) -> Pauses:
    """Pauses, without those in progress."""
    counts = slot.compile
    return Pauses(
        checkpoint_seconds=None if "saving" in slot.identity.missing else counts.saving_ns / 1e9,
        evaluation_seconds=counts.evaluating_ns / 1e9 if counts.evaluations else None,
        evaluations=counts.evaluations or None,
        evaluation_batch_seconds=(
            counts.evaluation_batches_ns / 1e9 / counts.evaluation_batches
            if counts.evaluation_batches
            else None
        ),
        before_seconds=counts.paused_before_ns / 1e9,
        warmup_seconds=counts.paused_warmup_ns / 1e9,
        between_cells_seconds=counts.between_cells_ns / 1e9 or None,
    )


def worth_of(slot: Slot) -> Worth:
    """Work per step, as last reported."""
    identity, counts = slot.identity, slot.compile
    excluded = identity.flops_excluded
    if identity.flops_counted and (counts.graph_breaks or counts.fallbacks or counts.failures):
        excluded = (*excluded, EAGER_CODE)
    return Worth(
        tokens=counts.tokens_per_step or None,
        samples=counts.samples_per_step or None,
        flops=identity.flops_per_step,
        counted=identity.flops_counted,
        excluded=excluded,
        parameters=identity.parameters or identity.parameters_seen,
        estimated=identity.parameters is None and identity.parameters_seen is not None,
        dtype=identity.dtype or None,
        dtypes=identity.flops_by_dtype,
    )


def baseline_of(identity: Identity) -> EagerSteps | None:
    """The first steps, if they were to run eagerly on purpose."""
    if not identity.baseline_steps:
        return None
    return EagerSteps(steps=identity.baseline_steps, seconds=identity.baseline_seconds)


def memory_of(slot: Slot) -> Memory | None:
    """Memory of CUDA's allocator at the last reading."""
    counts = slot.compile
    if not counts.memory_ns:
        return None
    by_kind = dict(zip(MEMORY, counts.memory, strict=True))
    return Memory(bytes=by_kind, at=epoch(slot.header, counts.memory_ns))


def warmups_of(slot: Slot) -> Warmups:
    """Warm-ups from the compile block, as far as the later steps confirm them."""
    header, counts = slot.header, slot.compile
    return Warmups(
        clean_steps_needed=header.warm_steps,
        latest=_span(header, counts.last_warmup) if warmup_ended(slot) else None,
        first=_span(header, counts.first_warmup) if counts.warmups else None,
        count=counts.warmups,
        warm_at_step=counts.clean_after + header.warm_steps,
        quiet_limit_seconds=seconds(verdict.quiet_limit_ns(slot.steps, counts)),
    )


def warmup_ended(slot: Slot) -> bool:
    """Whether the latest warm-up has ended and nothing has begun since.

    Between the K-th clean mark and the entry of the warm-up that it ended, a reader still finds
    the entry of an earlier one, which does not count.
    """
    counts, ended_ns = slot.compile, slot.compile.last_warmup.ended_ns
    by_steps = verdict.clean_steps(slot.steps, counts) >= slot.header.warm_steps
    if not counts.warmups or not (by_steps or verdict.is_settled(counts)):
        return False
    return 0 < ended_ns >= counts.last_end_ns


def _span(header: Header, warmup: Warmup) -> WarmupSpan | None:
    """``None`` if it ended before it began, which no agent writes."""
    if warmup.ended_ns < warmup.began_ns:
        return None
    return WarmupSpan(
        ended_at=header.epoch_seconds(warmup.ended_ns),
        seconds=(warmup.ended_ns - warmup.began_ns) / 1e9,
        steps=warmup.steps,
    )
