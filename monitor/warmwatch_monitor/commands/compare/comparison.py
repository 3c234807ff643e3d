"""Runs compared: cost, steady speed and break-even. Pure.

``warmwatch compare --json`` is a ``Comparison``, key by key; ``None`` is "not known". Whether two
programs differ in speed by more than their own runs do is decided for each pair by its own runs.

A sample is a run, not a step: steps of one run share its clocks, its memory layout and its
neighbours. docs/design/comparing-runs.md: why it is done so, and how often it is wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import ceil, exp, log, sqrt
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from warmwatch_monitor.commands.compare.comparability import Incomparable, incomparable, unknown
from warmwatch_monitor.commands.report.assembly import report
from warmwatch_monitor.commands.report.parts import Report, RunFigures
from warmwatch_monitor.figures.declared import copied
from warmwatch_monitor.model.run_summary import RunSummary, slowest_of
from warmwatch_monitor.output.amounts import clean_step
from warmwatch_monitor.status.schema.rank import End

# of Student's t, two-sided, by degrees of freedom
_T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
# relative: a run's own step is known no better, so runs that agree by chance prove nothing
_FINEST = 0.005

FASTER, SLOWER = "faster", "slower"
WITHIN_NOISE, ONCE, DISTURBED, SAME = "within_noise", "once", "disturbed", "same_program"


class Run(Struct, frozen=True, kw_only=True):
    """A run of a program: one sample of its speed."""

    id: str
    """Its id in the history, or its name in this comparison."""
    began: float
    """When it began."""
    seconds: float
    """Length of its clean step."""
    disturbed: str | None = None
    """What slowed it, so that it says nothing about the program: `CPU contention`, or another run
    on a host without a GPU; null if nothing is known to."""
    cost_seconds: float | None = None
    """What compiling cost in it, as in `cost_seconds` of a side; null if unknown."""


class Difference(Struct, frozen=True, kw_only=True):
    """How much faster one program is than another, by the means of their runs."""

    verdict: str
    """`faster` or `slower`: by more than their runs differ among themselves. `within_noise`: not by
    more. Not known: `once` (one of them has a single run), `disturbed` (a compared run was; of a
    mode, all runs), `same_program` (both are runs of one program, as far as recorded)."""
    ratio: float
    """Mean step of the other, divided by its own: over 1 if it is faster. With `same_program`, of
    the two runs."""
    low: float | None = None
    """The ratio is at least this, with 95 % confidence; null if not known."""
    high: float | None = None
    """It is at most this."""

    @property
    def claimed(self) -> bool:
        return self.verdict in (FASTER, SLOWER)


def usable(runs: Iterable[Run]) -> tuple[Run, ...]:
    """The runs that were not disturbed; the first one alone, if it was.

    The first is the compared one: no figure of another run is given for its own.
    """
    runs = tuple(runs)
    if runs and runs[0].disturbed is not None:
        return runs[:1]
    return tuple(run for run in runs if run.disturbed is None)


def mean(runs: Sequence[Run]) -> float | None:
    """The geometric mean of their steps, which ratios are taken of."""
    used = usable(runs)
    return exp(sum(log(run.seconds) for run in used) / len(used)) if used else None


def difference(runs: Sequence[Run], others: Sequence[Run], *, is_same: bool = False) -> Difference:
    """How much faster ``runs`` of one program are than those of another.

    The first run of each is the compared one. Depends on these runs alone. Both programs need two,
    because a single run has no spread. A run that may be of either, because too little of it is
    recorded, is left out.

    ``is_same``: the compared runs are of one program, as they are if either is in both groups.
    """
    ids, their_ids = ({run.id for run in program} for program in (runs, others))
    if is_same or runs[0].id in their_ids or others[0].id in ids:
        return Difference(verdict=SAME, ratio=others[0].seconds / runs[0].seconds)
    mine = usable(run for run in runs if run.id not in their_ids)
    theirs = usable(run for run in others if run.id not in ids)
    ratio = (mean(theirs) or 0.0) / (mean(mine) or 1.0)
    if any(run.disturbed for run in (*mine, *theirs)):
        return Difference(verdict=DISTURBED, ratio=ratio)
    if min(len(mine), len(theirs)) < 2:
        return Difference(verdict=ONCE, ratio=ratio)
    gain, off = _without_drift(mine, theirs)
    off += abs(gain - log(ratio))  # the interval of the means covers that without drift
    low, high = log(ratio) - off, log(ratio) + off
    verdict = FASTER if low > 0 else SLOWER if high < 0 else WITHIN_NOISE
    return Difference(verdict=verdict, ratio=ratio, low=exp(low), high=exp(high))


def _without_drift(mine: Sequence[Run], theirs: Sequence[Run]) -> tuple[float, float]:
    """The logarithm of the ratio, and half the width of its 95 % interval.

    Least squares of the logarithms by program and by the order of the runs: a machine that gets
    slower steadily is no difference of the programs. The degrees of freedom are those of the
    program with fewer runs, which holds for programs whose runs do not vary alike.
    """
    order = sorted((*mine, *theirs), key=lambda run: run.began)
    lengths = _centred([-log(run.seconds) for run in order])
    drift = _centred([float(at) for at in range(len(order))])
    program = _centred([float(run in mine) for run in order])
    of_drift = _dot(program, drift) / _dot(drift, drift)
    program = [value - of_drift * at for value, at in zip(program, drift, strict=True)]
    size = _dot(program, program)
    gain, slope = _dot(program, lengths) / size, _dot(drift, lengths) / _dot(drift, drift)
    squares = _dot(lengths, lengths) - gain**2 * size - slope**2 * _dot(drift, drift)
    spread = max(_FINEST, sqrt(max(0.0, squares) / (len(order) - 3)))
    freedom = min(len(mine), len(theirs)) - 1
    return gain, _T_95[min(freedom, len(_T_95)) - 1] * spread / sqrt(size)


def _centred(values: Sequence[float]) -> list[float]:
    middle = sum(values) / len(values)
    return [value - middle for value in values]


def _dot(values: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(values, other, strict=True))


SCHEMA_VERSION = 1
_NO_NEIGHBOURS: Mapping[str, tuple[Neighbour, ...]] = MappingProxyType({})
_ALONE: Mapping[str, tuple[Run, ...]] = MappingProxyType({})
EAGER = "eager"  # in addition to the modes of torch.compile


class Neighbour(Struct, frozen=True, kw_only=True):
    """A run on the same host at the same time."""

    id: str
    """Its id in the history."""
    run: str
    """Its name."""
    share: float
    """The share of the compared run's time in which it ran too."""


class Measured(RunFigures, frozen=True, kw_only=True):
    """What a run cost, and how fast it was."""

    clean_steps: int | None = None
    """Number of clean steps."""
    first_step_memory_bytes: int | None = None
    """The most that CUDA's allocator had allocated when step 1 ended."""
    mean_seconds: float | None = None
    """Geometric mean of the clean steps of `runs`, without the disturbed ones; if the run itself
    was disturbed, its own clean step."""
    steady_p99_seconds: float | None = None
    """99th percentile of the clean steps."""
    speed_up: Difference | None = None
    """How much faster it is than the baseline."""
    cost_seconds: float | None = None
    """What compiling cost: the time that steps took beyond a steady one, or all compile time if
    that is more; null if unknown."""


class Side(Measured, frozen=True, kw_only=True):
    """One run. Its figures are of the rank that compiled longest."""

    id: str
    """Its id in the history."""
    run: str
    """Its name."""
    label: str
    """Its name in this comparison."""
    state: str
    """Its state, as in `/status`."""
    end: End | None = None
    """How the rank ended; null if it lives."""
    mode: str | None
    """How `torch.compile` was called, or `eager`; null if it neither compiled nor completed a step.
    """
    rank: int | None = None
    """That rank."""
    compiled_memory_bytes: int | None = None
    """The most that CUDA's allocator held at the end of a compilation. A backward is compiled in
    step 1, while the activations of its forward are stored."""
    gpu_seconds: float | None = None
    """GPU time of compiling, all ranks."""
    joules: float | None = None
    """Energy of compiling, all ranks."""
    steady_seconds: float | None = None
    """Length of its clean step."""
    runs: tuple[Run, ...] = ()
    """The runs of its program that show its speed, itself first: other starts of it in the history,
    as far as recorded."""
    tokens_per_second: float | None = None
    """Tokens per second in clean steps."""
    neighbours: tuple[Neighbour, ...] = ()
    """Other runs in the history that ran on the same host at the same time, the longest first."""


class BreakEven(Struct, frozen=True, kw_only=True):
    """When a run has recovered its extra cost over another."""

    run: str
    """Label of the run."""
    against: str
    """Label of the other."""
    outcome: str
    """`paid_back`, `at_once` (it costs no more), `ahead_until` (it costs less, and its steps are
    longer) or `never`, if their steps differ; else the verdict of `difference`; `unknown` if one of
    them has no clean step, or no known cost."""
    difference: Difference | None = None
    """How much faster it is."""
    cost_seconds: float | None = None
    """Its extra cost."""
    saves_seconds: float | None = None
    """What each step saves, by the means of the runs; negative if its steps are longer."""
    saves_least_seconds: float | None = None
    """It saves at least this, with 95 % confidence; null if not known."""
    saves_most_seconds: float | None = None
    """It saves at most this."""
    step: int | None = None
    """The step from which it is ahead, or with `ahead_until` no longer is. With `once`, that of the
    measured steps; null if there is none."""
    earliest: int | None = None
    """The earliest such step, by the interval of the saving."""
    latest: int | None = None
    """The latest such step."""


class Comparison(Struct, frozen=True, kw_only=True):
    """Runs side by side."""

    schema_version: int = SCHEMA_VERSION
    """1. Within a version, no key changes its meaning."""
    baseline: str
    """Label of the run that the others are compared with."""
    sides: tuple[Side, ...]
    """The runs."""
    incomparable: tuple[Incomparable, ...] = ()
    """Differences that make figures incomparable."""
    unknown: tuple[str, ...] = ()
    """Properties that must be equal and are known for some of the runs only."""
    break_even: tuple[BreakEven, ...] = ()
    """Break-even of each run with the baseline."""


def break_even(side: Side, against: Side, *, is_same: bool = False) -> BreakEven:
    """Break-even of ``side`` with ``against``: the extra cost divided by the saving per step.

    Both are of the means of the runs, and none is claimed if their steps do not differ.
    ``is_same``: as in ``difference``.
    """
    break_even = BreakEven(run=side.label, against=against.label, outcome="unknown")
    if not side.runs or not against.runs:
        return break_even
    apart = difference(side.runs, against.runs, is_same=is_same)
    break_even = replace(break_even, difference=apart)
    if side.cost_seconds is None or against.cost_seconds is None:
        return break_even
    cost, step = side.cost_seconds - against.cost_seconds, mean(against.runs) or 0.0
    saves, least, most = (
        None if ratio is None else step * (1 - 1 / ratio)
        for ratio in (apart.ratio, apart.low, apart.high)
    )
    assert saves is not None
    crosses = cost * saves > 0  # one costs more, and the other has longer steps
    is_known = apart.claimed and crosses and least is not None and most is not None
    ends = sorted(abs(cost / each) for each in (least, most) if each) if is_known else ()
    return replace(
        break_even,
        outcome=_outcome(cost, saves) if apart.claimed else apart.verdict,
        cost_seconds=cost,
        saves_seconds=saves,
        saves_least_seconds=least,
        saves_most_seconds=most,
        step=ceil(cost / saves) if crosses and (is_known or apart.verdict == ONCE) else None,
        earliest=ceil(ends[0]) if ends else None,
        latest=ceil(ends[-1]) if ends else None,
    )


def _outcome(cost: float, saves: float) -> str:
    if saves > 0:
        return "paid_back" if cost > 0 else "at_once"
    return "never" if cost >= 0 else "ahead_until"


def compare(
    summaries: Sequence[RunSummary],
    *,
    labels: Sequence[str] | None = None,
    programs: Mapping[str, tuple[Run, ...]] = _ALONE,
    neighbours: Mapping[str, tuple[Neighbour, ...]] = _NO_NEIGHBOURS,
    same: Collection[frozenset[str]] = (),
) -> Comparison:
    """All runs side by side. The baseline is the first eager run, else the first run.

    ``labels``: used instead of the names. ``programs``: by the id of a run, the runs of its
    program; without, it is the only one. ``neighbours``: by that id. ``same``: ids of two of
    these runs that are of one program.
    """
    reports = [report(run) for run in summaries]
    names = [run.run for run in summaries]
    labels = labels or [
        run.run if names.count(run.run) == 1 else f"{run.run} ({run.id})" for run in summaries
    ]
    sides = [
        _side(
            summary,
            made,
            label,
            programs.get(summary.id, runs_of([summary])),
            neighbours.get(summary.id, ()),
        )
        for summary, made, label in zip(summaries, reports, labels, strict=True)
    ]
    baseline = next((side for side in sides if side.mode == EAGER), sides[0])
    pairs = {
        side.label: break_even(side, baseline, is_same=frozenset((side.id, baseline.id)) in same)
        for side in sides
        if side is not baseline
    }
    return Comparison(
        baseline=baseline.label,
        sides=tuple(
            replace(side, speed_up=pairs[side.label].difference) if side.label in pairs else side
            for side in sides
        ),
        incomparable=incomparable(summaries, reports),
        unknown=unknown(reports),
        break_even=tuple(pairs.values()),
    )


def runs_of(
    summaries: Sequence[RunSummary],
    neighbours: Mapping[str, tuple[Neighbour, ...]] = _NO_NEIGHBOURS,
) -> tuple[Run, ...]:
    """The samples of a program's speed: each of its runs that has a clean step."""
    return tuple(
        Run(
            id=summary.id,
            began=summary.began,
            seconds=step,
            disturbed=_disturbed(summary, neighbours.get(summary.id, ())),
            cost_seconds=_cost(slowest_of(summary).answer, report(summary)),
        )
        for summary in summaries
        if (step := step_of(summary))
    )


def _disturbed(summary: RunSummary, neighbours: Sequence[Neighbour]) -> str | None:
    """What is known to have slowed its steps; on GPUs, a neighbour may have others."""
    made = report(summary)
    if made.limited_by is not None and made.limited_by.verdict == "shared":
        return made.limited_by.subject
    if made.slower:
        return "a slower period"
    return f"{neighbours[0].run} on its host" if neighbours and not summary.what.gpus else None


def step_of(summary: RunSummary) -> float | None:
    """The clean step length of the rank that is compared."""
    return clean_step(slowest_of(summary).answer) if summary.ranks else None


def _side(
    summary: RunSummary,
    made: Report,
    label: str,
    runs: tuple[Run, ...],
    neighbours: tuple[Neighbour, ...],
) -> Side:
    rank = slowest_of(summary) if summary.ranks else None
    functions = (rank.answer["compile"].get("functions") or ()) if rank else ()
    whole = made.costs[-1] if made.costs else None
    return copied(
        made,
        Side,
        label=label,
        mode=mode_of(made),
        first_step_memory_bytes=rank.first_step_bytes if rank else None,
        compiled_memory_bytes=max(
            (bytes for each in functions if (bytes := each.get("allocated_bytes"))), default=None
        ),
        cost_seconds=_cost(rank.answer, made) if rank else None,
        gpu_seconds=whole.gpu_seconds if whole else None,
        joules=whole.joules if whole else None,
        steady_seconds=made.steady.seconds,
        tokens_per_second=made.worth.tokens_per_second if made.worth else None,
        runs=runs,
        mean_seconds=mean(runs),
        neighbours=neighbours,
        steady_p99_seconds=made.steady.p99,
        clean_steps=made.steady.count,
    )


def mode_of(made: Report) -> str | None:
    """How it was compiled; ``eager`` if it made steps without compiling."""
    if not made.compile_seconds and not made.graphs_before:
        ahead = ", ".join(made.precompiled)
        return (ahead or EAGER) if made.steps else None
    ways = (
        wrapping.mode if wrapping.backend == "inductor" else f"{wrapping.mode} ({wrapping.backend})"
        for wrapping in made.what.wrappings
    )
    return "; ".join(dict.fromkeys(ways)) or "compiled"


def _cost(rank: Mapping[str, Any], made: Report) -> float | None:
    """What steps took beyond clean ones, or all compile time if that is more.

    Not known without a step or compile activity, or if it compiled before the agent attached.
    """
    if made.graphs_before or not (made.compile_seconds or made.steps):
        return None
    beyond = rank["cost"]["beyond_steady_seconds"] or 0.0
    return max(beyond, made.compile_seconds) if made.compile_seconds else 0.0
