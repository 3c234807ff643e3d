"""Compares what was measured with a baseline. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum

from msgspec import Struct

from warmwatch_monitor.commands.check.baseline import (
    COUNTS,
    RATIO,
    Baseline,
    BaselineRank,
    Counts,
    MeasuredRank,
    MeasuredRun,
    named,
    ranks_of,
)
from warmwatch_monitor.model.journal import Compilation, CudagraphSkip, Fallback, GraphBreak

SECONDS = "warmup_seconds"
Cause = Compilation | GraphBreak | Fallback | CudagraphSkip


class Moved(Struct, frozen=True, kw_only=True):
    """The counts of a function that changed; ``was``: ``None`` if not in the baseline."""

    function: str
    now: Counts
    was: Counts | None = None


class Compared(Struct, frozen=True, kw_only=True):
    """One number of a run, compared with the baseline's.

    Attributes:
        run, ranks: of which ranks; ``ranks`` is empty for a number of the whole run.
        measure: one of COUNTS, or of the warm-up's two.
        was, now, limit: the baseline's value, the current one, and the largest that passes.
        causes: from the journal.
        moved: functions whose counts differ from the baseline's.
    """

    run: str
    measure: str
    was: float
    now: float
    limit: float
    ranks: str = ""
    causes: tuple[Cause, ...] = ()
    moved: tuple[Moved, ...] = ()

    @property
    def grew(self) -> bool:
        return self.now > self.limit


class Kind(Enum):
    """Kinds of remarks on a comparison."""

    ANOTHER_TORCH = "another torch"
    ANOTHER_NAME = "the one run here, compared with the one of the baseline"
    UNKNOWN_RUN = "the baseline does not know this run"
    UNKNOWN_RANKS = "the baseline does not know these ranks"
    UNKNOWN_COUNT = "the baseline does not know this number"
    AGENT_ERRORS = "counts may be low"
    SHORT_STEPS = "its warm-up in steady steps would be noise"
    UNSETTLED = "its warm-up in steady steps is of few or changing steps"
    NO_RUN = "a run of the baseline was not seen"
    NO_RANKS = "ranks of the baseline were not seen"
    NO_COUNT = "a number of the baseline is not reported"
    LOST_LINES = "a number of the baseline is in lines that could not be written"
    NEVER_WARM = "it never became warm"
    NOT_COMPILED = "nothing of it was compiled"


# The check fails with any of these: something could not be compared.
_FAILING = (
    *(Kind.NO_RUN, Kind.NO_RANKS, Kind.NO_COUNT, Kind.LOST_LINES),
    *(Kind.NEVER_WARM, Kind.NOT_COMPILED, Kind.AGENT_ERRORS),
)


class Remark(Struct, frozen=True, kw_only=True):
    """A remark. ``what``: the ranks, count or version that it is about."""

    kind: Kind
    run: str = ""
    what: str = ""

    @property
    def fails(self) -> bool:
        """Whether the check fails because of it."""
        return self.kind in _FAILING


class Comparison(Struct, frozen=True, kw_only=True):
    """All compared numbers, and remarks."""

    held: tuple[Compared, ...] = ()
    remarks: tuple[Remark, ...] = ()

    @property
    def grew(self) -> tuple[Compared, ...]:
        return tuple(compared for compared in self.held if compared.grew)

    @property
    def fell(self) -> tuple[Compared, ...]:
        return tuple(
            compared for compared in self.held if compared.ranks and compared.now < compared.was
        )

    @property
    def incomplete(self) -> bool:
        return any(remark.fails for remark in self.remarks)


def compared(
    runs: Sequence[MeasuredRun],
    baseline: Baseline,
    tolerance: float | None = None,
    beside: Sequence[MeasuredRun] = (),
) -> Comparison:
    """Compare ``runs`` with the baseline. ``tolerance`` overrides the baseline's.

    ``beside``: what was measured in the same job, so the warm-up is compared in seconds. Runs are
    matched by name; if each side has one run, their names do not matter.
    """
    allowed = baseline.tolerance if tolerance is None else tolerance
    held: list[Compared] = []
    remarks = list(_torches(runs, baseline))
    pairs = _pairs(runs, baseline)
    of_names = {run.run: run.warmup_seconds for run in beside}
    for run, name in pairs:
        was = baseline.runs.get(name)
        if was is None:
            remarks.append(Remark(kind=Kind.UNKNOWN_RUN, run=run.run))
            continue
        if run.run != name:
            remarks.append(Remark(kind=Kind.ANOTHER_NAME, run=run.run, what=name))
        alone = len(baseline.runs) == len(beside) == 1
        seconds = beside[0].warmup_seconds if alone else of_names.get(name)
        warmups = {SECONDS: seconds, RATIO: was.warmup_ratio}
        ranks = ranks_of(name, was)
        held += _counts(run, ranks, baseline.ignore)
        if RATIO not in baseline.ignore:
            held += _warmup(run, warmups, allowed)
        remarks += _remarks(run, ranks, warmups, baseline.ignore)
        if errors := sum(rank.errors for rank in run.ranks):
            remarks.append(Remark(kind=Kind.AGENT_ERRORS, run=run.run, what=str(errors)))
    seen = {name for _, name in pairs}
    remarks += (Remark(kind=Kind.NO_RUN, run=name) for name in baseline.runs if name not in seen)
    return Comparison(held=tuple(held), remarks=tuple(remarks))


def _pairs(runs: Sequence[MeasuredRun], baseline: Baseline) -> list[tuple[MeasuredRun, str]]:
    """Each run, and its name in the baseline. A single run on each side may be a job's id."""
    if len(runs) == 1 and len(baseline.runs) == 1:
        return [(runs[0], next(iter(baseline.runs)))]
    return [(run, run.run) for run in runs]


def _torches(runs: Sequence[MeasuredRun], baseline: Baseline) -> Iterator[Remark]:
    name = next((run.torch for run in runs if run.torch), None)
    if baseline.torch and name and name != baseline.torch:
        yield Remark(kind=Kind.ANOTHER_TORCH, what=f"{name}, was {baseline.torch}")


def _counts(
    run: MeasuredRun, held: Mapping[int, BaselineRank], ignore: Sequence[str]
) -> Iterator[Compared]:
    """Compare rank by rank; ranks with equal numbers form one entry."""
    for measure in COUNTS:
        groups: dict[tuple[int, int], list[MeasuredRank]] = {}
        for rank in run.ranks:
            baseline_rank = held.get(rank.rank)
            if baseline_rank is None or measure in ignore:
                continue
            before, now = baseline_rank.counts.get(measure), rank.counts.get(measure)
            if before is not None and now is not None:
                groups.setdefault((before, now), []).append(rank)
        for (before, now), ranks in groups.items():
            yield Compared(
                run=run.run,
                ranks=named(measured_rank.rank for measured_rank in ranks),
                measure=measure,
                was=before,
                now=now,
                limit=before,
                causes=_causes(measure, ranks[0]),
                moved=tuple(_moved(ranks[0], held[ranks[0].rank])),
            )


def _causes(measure: str, rank: MeasuredRank) -> tuple[Cause, ...]:
    causes = rank.causes
    if measure == "recompiles":
        return tuple(cause for cause in causes.recompiles if not cause.at_limit)
    if measure == "recompiles_after_warm":
        return causes.late
    if measure == "graph_breaks":
        return causes.breaks
    if measure == "fallbacks":
        return causes.fallbacks
    if measure == "failures":
        return tuple(compilation for compilation in causes.compilations if compilation.failure)
    if measure == "cudagraph_skips":
        return (
            *(compilation for compilation in causes.compilations if compilation.cudagraph_skip),
            *causes.skips,
        )
    return ()


def _moved(rank: MeasuredRank, was: BaselineRank) -> Iterator[Moved]:
    for name, now in rank.functions.items():
        before = was.functions.get(name)
        if now != before:
            yield Moved(function=name, now=now, was=before)


def _warmup(
    run: MeasuredRun, warmups: Mapping[str, float | None], tolerance: float
) -> Iterator[Compared]:
    """Compare the warm-up in seconds if both were measured in this job, else in steady steps."""
    for measure, before in warmups.items():
        now = getattr(run, measure)
        if before is not None and now is not None:
            limit = before * (1 + tolerance)
            yield Compared(run=run.run, measure=measure, was=before, now=now, limit=limit)
            return


def _remarks(
    run: MeasuredRun,
    held: Mapping[int, BaselineRank],
    warmups: Mapping[str, float | None],
    ignore: Sequence[str],
) -> Iterator[Remark]:
    """Remarks on ranks and counts that only one side has."""
    seen = {measured_rank.rank: measured_rank for measured_rank in run.ranks}
    if new := [rank for rank in seen if rank not in held]:
        yield Remark(kind=Kind.UNKNOWN_RANKS, run=run.run, what=named(new))
    if gone := [rank for rank in held if rank not in seen]:
        yield Remark(kind=Kind.NO_RANKS, run=run.run, what=named(gone))
    both = [(seen[rank].counts, held[rank].counts) for rank in seen if rank in held]
    for measure in COUNTS:
        if measure in ignore:
            continue
        if any(measure in before and measure not in now for now, before in both):
            lost = measure == "kernels" and any(
                measured_rank.dropped for measured_rank in run.ranks
            )
            kind = Kind.LOST_LINES if lost else Kind.NO_COUNT
            yield Remark(kind=kind, run=run.run, what=measure)
        elif any(measure in now and measure not in before for now, before in both):
            yield Remark(kind=Kind.UNKNOWN_COUNT, run=run.run, what=measure)
    if not run.compiled and any(rank.counts.get("graphs") for rank in held.values()):
        yield Remark(kind=Kind.NOT_COMPILED, run=run.run)
        return
    if RATIO in ignore:
        return
    if any(value is not None for value in warmups.values()) and run.warmup_seconds is None:
        yield Remark(kind=Kind.NEVER_WARM, run=run.run)
    elif warmups[SECONDS] is not None:
        return
    elif run.short_step is not None:
        yield Remark(kind=Kind.SHORT_STEPS, run=run.run, what=str(run.short_step))
    elif run.unsettled is not None and run.warmup_ratio:
        yield Remark(kind=Kind.UNSETTLED, run=run.run, what=str(run.unsettled))
