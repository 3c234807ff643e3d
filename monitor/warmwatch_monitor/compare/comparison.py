"""Runs compared: cost, steady speed, confidence intervals, and break-even. Pure.

``warmwatch compare --json`` is a ``Comparison``, key by key. An ``uncertainty`` is half the width
of a 95 % interval; ``None`` is "not known", and a single measurement has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, hypot
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from warmwatch_monitor.compare.comparability import Incomparable, incomparable, unknown
from warmwatch_monitor.compare.noise import Noise, Repeats
from warmwatch_monitor.compare.noise import noise as noise_of
from warmwatch_monitor.model import HALF_A_BIN
from warmwatch_monitor.model.run_summary import RunSummary
from warmwatch_monitor.output.amounts import clean_step
from warmwatch_monitor.published import copied
from warmwatch_monitor.report.assembly import report, slowest_of
from warmwatch_monitor.report.parts import Report, Steady

SCHEMA_VERSION = 1
_NONE: Mapping[str, tuple[Neighbour, ...]] = MappingProxyType({})
EAGER = "eager"  # in addition to the modes of torch.compile


class Measured(Struct, frozen=True, kw_only=True):
    """A value and its uncertainty."""

    value: float
    """The value."""
    uncertainty: float | None = None
    """Half the width of its 95 % confidence interval, with the noise between runs; null for a
    single measurement."""


class Neighbour(Struct, frozen=True, kw_only=True):
    """A run on the same host at the same time."""

    id: str
    """Its id in the history."""
    run: str
    """Its name."""
    share: float
    """The share of the compared run's time in which it ran too."""


class Side(Struct, frozen=True, kw_only=True):
    """One run. Its figures are of the rank that compiled longest."""

    id: str
    """Its id in the history."""
    run: str
    """Its name."""
    label: str
    """Its name in this comparison."""
    state: str
    """Its state, as in `/status`."""
    mode: str | None
    """How `torch.compile` was called, or `eager`; null if it neither compiled nor completed a step.
    """
    rank: int | None = None
    """That rank."""
    steps: int = 0
    """Completed steps."""
    first_step_seconds: float | None = None
    """Length of step 1."""
    first_step_memory_bytes: int | None = None
    """The most that CUDA's allocator had handed out when step 1 ended."""
    compiled_memory_bytes: int | None = None
    """The most that CUDA's allocator held at the end of a compilation. A backward is compiled in
    step 1, while the activations of its forward are stored."""
    warmup_seconds: float | None = None
    """Length of the first warm-up; null if it was never warm."""
    warmup_steps: int | None = None
    """Steps within it."""
    compile_seconds: float = 0.0
    """Compile time."""
    cost_seconds: float | None = None
    """What compiling cost: the time that steps took beyond a steady one, or all compile time if
    that is more; null if unknown."""
    gpu_seconds: float | None = None
    """GPU time of compiling, all ranks."""
    joules: float | None = None
    """Energy of compiling, all ranks."""
    money: float | None = None
    """Price of compiling, all ranks."""
    steady: Measured | None = None
    """Length of a clean step, in seconds."""
    steady_p99_seconds: float | None = None
    """99th percentile of the clean steps."""
    clean_steps: int | None = None
    """Number of clean steps."""
    speed_up: Measured | None = None
    """Clean step of the baseline, divided by its own."""
    tokens_per_second: float | None = None
    """Tokens per second in clean steps."""
    peak_memory_bytes: int | None = None
    """The most that CUDA's allocator had handed out."""
    joules_per_step: float | None = None
    """Mean energy of a clean step."""
    graphs: int | None = None
    """Number of graphs that Dynamo captured."""
    recompiles: int | None = None
    """Number of recompiles."""
    graph_breaks: int | None = None
    """Number of graph breaks."""
    slower: tuple[Mapping[str, Any], ...] = ()
    """Periods in which steps took longer than before, as in `/status`."""
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
    longer), `never`, `no_difference` or `unknown`."""
    cost_seconds: float | None = None
    """Its extra cost."""
    saves: Measured | None = None
    """What each step saves, in seconds."""
    step: int | None = None
    """The step from which it is ahead, or with `ahead_until` no longer is; null if there is none.
    """
    earliest: int | None = None
    """The earliest such step, by the uncertainty of the saving."""
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
    noise: Noise
    """How far two runs of one program are apart."""
    incomparable: tuple[Incomparable, ...] = ()
    """Differences that make figures incomparable."""
    unknown: tuple[str, ...] = ()
    """Properties that must be equal and are unknown for a run."""
    break_even: tuple[BreakEven, ...] = ()
    """Break-even of each run with the baseline."""


def steady(known: Steady, noise: Noise) -> Measured | None:
    """The clean step length. Its uncertainty is that within the run and that between runs."""
    if known.seconds is None:
        return None
    error = hypot(_within(known) or 0.0, noise.of(known.seconds))
    return Measured(value=known.seconds, uncertainty=error)


def _within(known: Steady) -> float | None:
    """The uncertainty within the run. Older histories have only the interval of the median."""
    if known.uncertainty is not None or known.low is None or known.high is None:
        return known.uncertainty
    return hypot((known.high - known.low) / 2, HALF_A_BIN * (known.seconds or 0.0))


def difference(one: Measured, other: Measured) -> Measured:
    known = None not in (one.uncertainty, other.uncertainty)
    both = hypot(one.uncertainty or 0.0, other.uncertainty or 0.0) if known else None
    return Measured(value=one.value - other.value, uncertainty=both)


def ratio(one: Measured, other: Measured) -> Measured:
    value = one.value / other.value
    if one.uncertainty is None or other.uncertainty is None:
        return Measured(value=value)
    relative = hypot(one.uncertainty / one.value, other.uncertainty / other.value)
    return Measured(value=value, uncertainty=value * relative)


def steps_until(cost: float, saves: float) -> int:
    """Number of steps until break-even."""
    return max(1, ceil(cost / saves))


_CROSSING = frozenset({"paid_back", "ahead_until"})


def break_even(side: Side, against: Side) -> BreakEven:
    """Break-even of ``side`` with ``against``: the extra cost divided by the saving per step."""
    whole = BreakEven(run=side.label, against=against.label, outcome="unknown")
    if None in (side.cost_seconds, against.cost_seconds, side.steady, against.steady):
        return whole
    assert side.steady
    assert against.steady
    cost = (side.cost_seconds or 0.0) - (against.cost_seconds or 0.0)
    saves = difference(against.steady, side.steady)
    outcome = _outcome(cost, saves)
    found = BreakEven(
        run=side.label, against=against.label, outcome=outcome, cost_seconds=cost, saves=saves
    )
    return _at_step(found, cost, saves) if outcome in _CROSSING else found


def _outcome(cost: float, saves: Measured) -> str:
    if abs(saves.value) <= (saves.uncertainty or 0.0):
        return "no_difference"
    if saves.value > 0:
        return "paid_back" if cost > 0 else "at_once"
    return "never" if cost >= 0 else "ahead_until"


def _at_step(found: BreakEven, cost: float, saves: Measured) -> BreakEven:
    """``found`` with the step at which one run overtakes the other."""
    off, cost, each = saves.uncertainty, abs(cost), abs(saves.value)
    return replace(
        found,
        step=steps_until(cost, each),
        earliest=None if off is None else steps_until(cost, each + off),
        latest=None if off is None else steps_until(cost, each - off),
    )


def compare(
    summaries: Sequence[RunSummary],
    price: float | None = None,
    *,
    labels: Sequence[str] | None = None,
    repeats: Sequence[Repeats] = (),
    neighbours: Mapping[str, tuple[Neighbour, ...]] = _NONE,
) -> Comparison:
    """All runs side by side. The baseline is the first eager run, else the first run.

    ``price``: of an hour of one GPU. ``labels``: used instead of the names. ``repeats``: programs
    that ran more than once, for the noise between runs. ``neighbours``: by the id of a run.
    """
    noise = noise_of(repeats)
    reports = [report(one, price) for one in summaries]
    labels = labels or _labels(reports)
    sides = [
        replace(_side(summary, made, label, noise), neighbours=neighbours.get(summary.id, ()))
        for summary, made, label in zip(summaries, reports, labels, strict=True)
    ]
    baseline = next((one for one in sides if one.mode == EAGER), sides[0])
    return Comparison(
        baseline=baseline.label,
        sides=tuple(
            one if one is baseline else replace(one, speed_up=speed_up(one, baseline))
            for one in sides
        ),
        noise=noise,
        incomparable=incomparable(summaries, reports),
        unknown=unknown(reports),
        break_even=tuple(break_even(one, baseline) for one in sides if one is not baseline),
    )


def _labels(reports: Sequence[Report]) -> list[str]:
    """Names, with ids if two names are equal."""
    names = [one.run for one in reports]
    return [one.run if names.count(one.run) == 1 else f"{one.run} ({one.id})" for one in reports]


def speed_up(side: Side, baseline: Side) -> Measured | None:
    """The baseline's step, divided by that of ``side``."""
    if side.steady is None or baseline.steady is None:
        return None
    return ratio(baseline.steady, side.steady)


def step_of(summary: RunSummary) -> float | None:
    """The clean step length of the rank that is compared."""
    return clean_step(slowest_of(summary).answer) if summary.ranks else None


def _side(summary: RunSummary, made: Report, label: str, noise: Noise) -> Side:
    rank: dict[str, Any] = dict(slowest_of(summary).answer) if summary.ranks else {}
    whole = made.costs[-1] if made.costs else None
    return copied(
        made,
        Side,
        label=label,
        mode=mode_of(made),
        first_step_memory_bytes=slowest_of(summary).first_step_bytes if summary.ranks else None,
        compiled_memory_bytes=_compiled_memory(rank),
        cost_seconds=_cost(rank, made) if rank else None,
        gpu_seconds=whole.gpu_seconds if whole else None,
        joules=whole.joules if whole else None,
        money=whole.money if whole else None,
        steady=steady(made.steady, noise),
        steady_p99_seconds=made.steady.p99,
        clean_steps=made.steady.count,
    )


def mode_of(made: Report) -> str | None:
    """How it was compiled; ``eager`` if it made steps without compiling."""
    if not made.compile_seconds and not made.graphs_before:
        ahead = ", ".join(made.precompiled)
        return (ahead or EAGER) if made.steps else None
    ways = (
        one.mode if one.backend == "inductor" else f"{one.mode} ({one.backend})"
        for one in made.what.wrappings
    )
    return "; ".join(dict.fromkeys(ways)) or "compiled"


def _compiled_memory(rank: dict[str, Any]) -> int | None:
    """The largest allocation of CUDA's allocator at the end of a compilation."""
    functions = (rank.get("compile") or {}).get("functions") or ()
    known = [one["allocated_bytes"] for one in functions if one.get("allocated_bytes")]
    return max(known, default=None)


def _cost(rank: dict[str, Any], made: Report) -> float | None:
    """Compile cost; of an eager run, the extra time of its first step.

    Not known for a run that compiled before the agent attached.
    """
    if not made.compile_seconds and (made.graphs_before or not made.steps):
        return None
    beyond = rank["cost"]["beyond_steady_seconds"]
    if made.compile_seconds:
        return max(beyond or 0.0, made.compile_seconds)
    if made.first_step_seconds is None or made.steady.seconds is None:
        return 0.0
    return max(0.0, made.first_step_seconds - made.steady.seconds)
