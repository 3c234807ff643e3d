"""Compares what was measured with a baseline, in numbers and in words. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from msgspec import Struct

from warmwatch.shared.phrases import counted, duration, took
from warmwatch_monitor.commands.check.baseline import (
    COUNTS,
    RATIO,
    Baseline,
    BaselineRank,
    MeasuredRank,
    MeasuredRun,
    named,
    ranks_of,
)
from warmwatch_monitor.commands.check.causes import OF_WARMUP, GrowthCause, causes_of

SECONDS = "warmup_seconds"
_NOUNS: Mapping[str, tuple[str, str]] = {
    "graphs": ("graph", "graphs"),
    "graph_breaks": ("graph break", "graph breaks"),
    "recompiles": ("recompile", "recompiles"),
    "recompiles_after_warm": ("recompile after warm", "recompiles after warm"),
    "fallbacks": ("function left to run eagerly", "functions left to run eagerly"),
    "failures": ("failed compilation", "failed compilations"),
    "kernels": ("kernel", "kernels"),
    "cudagraph_skips": ("CUDA graph left out", "CUDA graphs left out"),
}


def title(measure: str) -> str:
    """``graph breaks``, ``warm-up``."""
    return _NOUNS[measure][1] if measure in _NOUNS else "warm-up"


def amount(measure: str, value: float) -> str:
    """``3``, ``as long as 684 steps``, ``12 s``."""
    if measure == RATIO:
        return f"as long as {value:,.0f} steps" if value >= 100 else f"as long as {value:.3g} steps"
    return duration(value) if measure == SECONDS else f"{value:g}"


class ComparedNumber(Struct, frozen=True, kw_only=True):
    """One number of a run, compared with the baseline's."""

    run: str
    """The run."""
    ranks: str | None
    """Its ranks, such as `0-3`; null for a number of the whole run."""
    measure: str
    """What is compared, as the baseline file names it."""
    baseline: float
    """The baseline's value."""
    now: float
    """The value that was measured."""
    limit: float
    """The largest value that passes."""
    grew: bool
    """Whether `now` exceeds `limit`."""
    words: str
    """The same as a clause."""
    causes: list[GrowthCause]
    """Why it grew; empty if it did not."""

    @property
    def fell(self) -> bool:
        return bool(self.ranks) and self.now < self.baseline

    @property
    def whose(self) -> str:
        """``train, ranks 0-3``."""
        if not self.ranks:
            return self.run
        return f"{self.run}, {'rank' if self.ranks.isdecimal() else 'ranks'} {self.ranks}"

    @property
    def brief(self) -> str:
        """``2 graphs``, ``warm-up as long as 684 steps``."""
        if self.measure in _NOUNS:
            return f"{self.now:g} {_NOUNS[self.measure][self.now != 1]}"
        return f"warm-up {amount(self.measure, self.now)}"


class Remark(Struct, frozen=True, kw_only=True):
    """A remark on a comparison.

    Attributes:
        fails: whether the check fails, because something could not be compared.
        of_run: it is of the run alone, whatever the baseline has.
        if_grew: it only matters if this number grew; empty: in any case.
    """

    text: str
    fails: bool = False
    of_run: bool = False
    if_grew: str = ""


class Comparison(Struct, frozen=True, kw_only=True):
    """All compared numbers, and remarks."""

    numbers: tuple[ComparedNumber, ...] = ()
    remarks: tuple[Remark, ...] = ()


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
    numbers, remarks = list[ComparedNumber](), list(_torches(runs, baseline))
    pairs = _pairs(runs, baseline)
    of_names = {run.run: run.warmup_seconds for run in beside}
    for run, name in pairs:
        was = baseline.runs.get(name)
        if was is None:
            text = "this run is not in the baseline, so it is not compared; --update adds it"
            remarks.append(Remark(text=f"{run.run}: {text}"))
            continue
        if run.run != name:  # the other side may be a command's, of --against
            text = f"compared with {name}, as each side has one run"
            remarks.append(Remark(text=f"{run.run}: {text}"))
        alone = len(baseline.runs) == len(beside) == 1
        seconds = beside[0].warmup_seconds if alone else of_names.get(name)
        warmups = {SECONDS: seconds, RATIO: was.warmup_ratio}
        ranks = ranks_of(name, was)
        numbers += _counts(run, ranks, baseline.ignore)
        if RATIO not in baseline.ignore:
            numbers += _warmup(run, warmups, allowed)
        remarks += _remarks(run, ranks, warmups, baseline.ignore)
    seen = {name for _, name in pairs}
    remarks += (
        Remark(
            text=f"{name}: this run of the baseline did not start; --update removes it", fails=True
        )
        for name in baseline.runs
        if name not in seen
    )
    return Comparison(numbers=tuple(numbers), remarks=tuple(remarks))


def _pairs(runs: Sequence[MeasuredRun], baseline: Baseline) -> list[tuple[MeasuredRun, str]]:
    """Each run, and its name in the baseline. A single run on each side may be a job's id."""
    if len(runs) == 1 and len(baseline.runs) == 1:
        return [(runs[0], next(iter(baseline.runs)))]
    return [(run, run.run) for run in runs]


def _torches(runs: Sequence[MeasuredRun], baseline: Baseline) -> Iterator[Remark]:
    name = next((run.torch for run in runs if run.torch), None)
    if baseline.torch and name and name != baseline.torch:
        text = f"torch is {name}, was {baseline.torch}: so what it compiles may differ"
        yield Remark(text=text)


def _number(
    run: str,
    measure: str,
    was: float,
    now: float,
    limit: float,
    causes: Callable[[], list[GrowthCause]],
    ranks: str | None = None,
) -> ComparedNumber:
    """``recompiles: 3, was 1``, and for the warm-up, which has a tolerance, its limit.

    ``was``: the baseline's value, or that of the ``--against`` command.
    """
    may = "" if limit == was else f" (may be {amount(measure, limit)})"
    return ComparedNumber(
        run=run,
        ranks=ranks,
        measure=measure,
        baseline=was,
        now=now,
        limit=limit,
        grew=now > limit,
        words=f"{title(measure)}: {amount(measure, now)}, was {amount(measure, was)}{may}",
        causes=causes() if now > limit else [],
    )


def _counts(
    run: MeasuredRun, held: Mapping[int, BaselineRank], ignore: Sequence[str]
) -> Iterator[ComparedNumber]:
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
            first = ranks[0]
            causes = partial(causes_of, measure, first, held[first.rank])
            whose = named(rank.rank for rank in ranks)
            yield _number(run.run, measure, before, now, before, causes, whose)


def _warmup(
    run: MeasuredRun, warmups: Mapping[str, float | None], tolerance: float
) -> Iterator[ComparedNumber]:
    """Compare the warm-up in seconds if both were measured in this job, else in steady steps."""
    for measure, before in warmups.items():
        now = getattr(run, measure)
        if before is not None and now is not None:
            limit = before * (1 + tolerance)
            yield _number(run.run, measure, before, now, limit, lambda: [OF_WARMUP])
            return


def _remarks(
    run: MeasuredRun,
    held: Mapping[int, BaselineRank],
    warmups: Mapping[str, float | None],
    ignore: Sequence[str],
) -> Iterator[Remark]:
    """Remarks on ranks and counts that only one side has, on the warm-up and on the agent."""
    name = run.run
    seen = {rank.rank: rank for rank in run.ranks}
    if new := [rank for rank in seen if rank not in held]:
        text = "is not in the baseline, so it is not compared; --update adds it"
        yield Remark(text=f"{name}: rank {named(new)} {text}")
    if gone := [rank for rank in held if rank not in seen]:
        text = "of the baseline did not start; with another number of ranks, run with --update"
        yield Remark(text=f"{name}: rank {named(gone)} {text}", fails=True)
    both = [(seen[rank].counts, held[rank].counts) for rank in seen if rank in held]
    for measure in COUNTS:
        if measure in ignore:
            continue
        if any(measure in before and measure not in now for now, before in both):
            yield Remark(text=f"{name}: {_missing(measure, run)}", fails=True)
        elif any(measure in now and measure not in before for now, before in both):
            text = f"the baseline does not limit the number of {title(measure)}, so they are "
            yield Remark(text=f"{name}: {text}not compared; --update adds it")
    if not run.compiled and any(rank.counts.get("graphs") for rank in held.values()):
        yield Remark(text=f"{name}: nothing was compiled, unlike in the baseline", fails=True)
    elif RATIO not in ignore:
        yield from _of_warmup(run, warmups)
    if errors := sum(rank.errors for rank in run.ranks):
        text = f"the agent caught {counted(errors, 'error')} of its own: counts may be low"
        yield Remark(text=f"{name}: {text}; see `warmwatch doctor`", fails=True, of_run=True)


def _missing(measure: str, run: MeasuredRun) -> str:
    """Why a count of the baseline is not known."""
    if measure == "kernels" and any(rank.dropped for rank in run.ranks):
        return (
            f"lines of its journal could not be written, so its {title(measure)} are not "
            f'known; give its record more room (WARMWATCH_DIR), or put "{measure}" into ignore'
        )
    return (
        f"this torch does not report {title(measure)}, which the baseline has; put "
        f'"{measure}" into its ignore, or use the torch that it was written with'
    )


def _of_warmup(run: MeasuredRun, warmups: Mapping[str, float | None]) -> Iterator[Remark]:
    if any(value is not None for value in warmups.values()) and run.warmup_seconds is None:
        text = "it never became warm, but the baseline's did: let it train for more steps"
        yield Remark(text=f"{run.run}: {text}", fails=True)
    elif warmups[SECONDS] is not None:
        return
    elif run.short_step is not None:
        text = (
            f"{run.run}: its steady step takes {took(run.short_step)}, too short to measure the "
            "warm-up in steps, so it is not compared; --against compares it in seconds, and "
            'ignore = ["warmup_ratio"] in the baseline removes this note'
        )
        yield Remark(text=text, of_run=True)
    elif run.unsettled is not None and run.warmup_ratio:
        text = (
            f"{run.run}: its speed had not settled after {counted(run.unsettled, 'clean step')}, "
            "so its warm-up in steps may differ in the next run: let it train for longer, compare "
            'seconds with --against, or put "warmup_ratio" into ignore'
        )
        yield Remark(text=text, of_run=True, if_grew=RATIO)
