"""The table of modes: its parts, and its computation. Pure.

Steps of modes that ran the same program differ only by noise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from warmwatch_monitor.commands.compare.comparability import (
    COMPILED_CODE,
    Incomparable,
    incomparable,
)
from warmwatch_monitor.commands.compare.comparison import (
    DISTURBED,
    EAGER,
    ONCE,
    BreakEven,
    Comparison,
    Measured,
    Run,
    Side,
    break_even,
    compare,
    difference,
    mean,
    runs_of,
    step_of,
)
from warmwatch_monitor.commands.modes.drift import Drift, Losses, drift
from warmwatch_monitor.commands.report.assembly import report
from warmwatch_monitor.figures.declared import copied
from warmwatch_monitor.model.journal import Wrapping
from warmwatch_monitor.model.run_summary import RunSummary, slowest_of
from warmwatch_monitor.output.amounts import clean_step

DEFAULT, REGIONAL = "default", "regional"
# without a GPU, the kernels are those of the other mode: there are no CUDA graphs
WITHOUT_CUDA_GRAPHS = {"reduce-overhead": DEFAULT, "max-autotune": "max-autotune-no-cudagraphs"}


def same_program(seen: Mapping[str, RunSummary]) -> dict[str, str]:
    """For each mode that ran the program of another measured mode, that mode."""
    measured = {mode: run for mode, run in seen.items() if step_of(run) is not None}
    values = {mode: _program(mode, measured) for mode in measured}
    return {mode: name for mode, name in values.items() if name != mode and name in measured}


def _program(mode: str, seen: Mapping[str, RunSummary]) -> str:
    if mode in WITHOUT_CUDA_GRAPHS and not any(rank.answer["gpus"] for rank in seen[mode].ranks):
        return WITHOUT_CUDA_GRAPHS[mode]
    if mode == REGIONAL and DEFAULT in seen and not _has_blocks(seen):
        return DEFAULT
    return mode


def _has_blocks(seen: Mapping[str, RunSummary]) -> bool:
    """Whether ``regional`` compiled other modules than ``default``, as far as known."""
    regional, default = (
        slowest_of(seen[mode]).answer["compile"].get("wrappers") for mode in (REGIONAL, DEFAULT)
    )
    return regional is None or regional != default


def programs(
    seen: Mapping[str, RunSummary],
    same: Mapping[str, str],
    repeats: Sequence[tuple[str, RunSummary]],
) -> dict[str, tuple[Run, ...]]:
    """By mode, the runs of its program, of all modes that ran it. ``repeats``: of later rounds.

    Undisturbed ones first: the first run is the compared one, and any round can be that.
    """
    runs: dict[str, list[Run]] = {}
    rounds: Counter[str] = Counter()
    for mode, summary in (*seen.items(), *repeats):
        rounds[mode] += 1
        generator = (replace(run, id=f"{mode} {rounds[mode]}") for run in runs_of([summary]))
        runs.setdefault(same.get(mode, mode), []).extend(generator)
    for each in runs.values():
        each.sort(key=lambda run: run.disturbed is not None)
    return {mode: tuple(runs.get(same.get(mode, mode), ())) for mode in seen}


SCHEMA_VERSION = 1
USUAL = (EAGER, DEFAULT, "reduce-overhead", "max-autotune")
# variants of the default mode, which PyTorch's own modes do not name
VARIANTS = (REGIONAL, "dynamic", "static")
NAMES = (*USUAL, "max-autotune-no-cudagraphs", *VARIANTS)
GUARD_SHARE = 0.01  # of a step: guard checks that take less are not worth a change


class Tried(Struct, frozen=True, kw_only=True):
    """The run of the script in one mode.

    Attributes:
        summary: summary of its run with the most steps, taken before the script was ended;
            ``None`` if there was no run.
        others: names of its other runs.
        ended_by: ``itself``; or ended by ``modes``: ``steps``, ``steady``, ``timeout``,
            ``interrupted``.
        code: return code if it ended itself, negative for the signal that killed it.
        seconds: duration of the script.
        output: file with its output.
        losses: recorded losses of each rank.
        guard_seconds: of guard checks for a step, after the steps were measured. guard_frames:
            those of each frame, by PyTorch's number. guard_rank: the rank that both are of.
        resident_bytes: the most resident memory of a rank, as far as it was polled.
    """

    mode: str
    summary: RunSummary | None = None
    others: tuple[str, ...] = ()
    ended_by: str = "itself"
    code: int | None = None
    seconds: float = 0.0
    output: str | None = None
    losses: Losses = field(default_factory=dict)
    guard_seconds: float | None = None
    guard_frames: Mapping[str, float] = field(default_factory=dict)
    guard_rank: int | None = None
    resident_bytes: int | None = None

    @property
    def guard_share(self) -> float | None:
        """Guard checks in a clean step, as a share of it. Other ranks may have other steps."""
        ranks = self.summary.ranks if self.summary else ()
        step = next(
            (clean_step(rank.answer) for rank in ranks if rank.rank == self.guard_rank), None
        )
        return self.guard_seconds / step if self.guard_seconds is not None and step else None


class Row(Measured, frozen=True, kw_only=True):
    """The row of one mode."""

    mode: str
    """The mode."""
    outcome: str
    """`measured`, `failed` (by itself), `unmeasured` (too few clean steps), `no_steps` (it
    compiled, but completed no step) or `nothing` (there was no run)."""
    id: str | None = None
    """Id of the run in the history."""
    run: str | None = None
    """Name of the run."""
    state: str | None = None
    """State of the run, as in `/status`."""
    ended_by: str = "itself"
    """`itself`, or why `modes` ended it: `steps`, `steady`, `timeout` or `interrupted`."""
    code: int | None = None
    """Return code if it ended by itself; negative for the signal that killed it."""
    exception: str | None = None
    """Type of the exception that ended the run."""
    seconds: float = 0.0
    """How long the script ran."""
    output: str | None = None
    """File with its output."""
    runs: tuple[Run, ...] = ()
    """Its runs in all rounds, and those of a mode that has the same kernels."""
    evaluations: int | None = None
    """Number of evaluations."""
    evaluation_seconds: float | None = None
    """Mean length of an evaluation, compilations within it included."""
    evaluation_batch_seconds: float | None = None
    """Usual length of a batch in an evaluation."""
    break_even: BreakEven | None = None
    """Break-even with the baseline."""
    against_default: BreakEven | None = None
    """Break-even with the default mode, if that is not the baseline."""
    total_seconds: float | None = None
    """Estimate for `training_steps` steps, compile cost included."""
    peak_resident_bytes: int | None = None
    """The most resident memory of a rank's process."""
    guard_seconds: float | None = None
    """Time of the guard checks of a step, of the rank with the most."""
    guard_share: float | None = None
    """The same, as a share of a clean step of that rank; null if unknown."""
    same_as: str | None = None
    """The measured mode that has the same kernels, such as `default` for `reduce-overhead` without
    CUDA graphs: the difference of their steps is noise. null if there is none."""
    drift: Drift | None = None
    """How far its losses are from eager's; null if unknown."""
    max_drift_exceeded: bool | None = None
    """Whether that is too far; null without a limit."""
    compiled: bool = False
    """Whether there was compile activity."""
    wrappings: tuple[Wrapping, ...] = ()
    """How `torch.compile` was called."""
    wrappers: int | None = None
    """Functions and modules that were passed to `torch.compile`, blocks included; null if unknown.
    """
    agent_errors: int = 0
    """Errors of the agent, all ranks."""
    gpus: int = 0
    """Number of GPUs used."""
    conditions: Mapping[str, str] = field(default_factory=dict)
    """A sentence for each condition that holds, by name."""
    summary: str = ""
    """The run's sentence."""
    others: tuple[str, ...] = ()
    """Names of the script's other runs."""

    @property
    def break_evens(self) -> list[BreakEven]:
        return [even for even in (self.break_even, self.against_default) if even is not None]

    @property
    def captured(self) -> bool:
        """Whether it compiled at least one graph, as far as known."""
        return self.compiled and self.graphs != 0


class Modes(Struct, frozen=True, kw_only=True):
    """The whole table."""

    schema_version: int = SCHEMA_VERSION
    """1. Within a version, no key changes its meaning."""
    rows: tuple[Row, ...] = ()
    """The modes, in the order in which they ran."""
    baseline: str | None = None
    """The mode that the others are compared with; null if none was measured."""
    training_steps: int | None = None
    """Number of steps of the estimates; null without `--training-steps`."""
    caches: str = "cold"
    """`cold`, or `kept` with `--caches keep`."""
    torch: str | None = None
    """Version of PyTorch."""
    gpus: tuple[str, ...] = ()
    """Model of each GPU that was used."""
    imposed: tuple[str, ...] = ()
    """Environment variables that override every mode."""
    untried: tuple[str, ...] = ()
    """Requested modes that were not run."""
    over_budget: tuple[str, ...] = ()
    """Those of them that did not fit in the budget."""
    budget_seconds: float | None = None
    """From `--budget`."""
    max_drift: float | None = None
    """From `--max-drift`."""
    noise: float | None = None
    """Drift of a second eager run over all its losses; null without one."""
    recommended: str | None = None
    """The mode to use for `recommended_steps` steps: the baseline, or one that takes less time for
    certain (95 %); null if not known, as where each mode ran once."""
    recommended_steps: int | None = None
    """Number of steps of the recommendation."""
    incomparable: tuple[Incomparable, ...] = ()
    """Differences between the runs that make figures incomparable."""


# of a run, in the comparison; the speed-up there is against another baseline
_OF_SIDE = tuple({*Row.__struct_fields__} & {*Side.__struct_fields__} - {"mode", "speed_up"})
_GONE = frozenset({"failed", "lost"})
USUAL_STEPS = 10_000  # of a training whose length is not given


def modes(tried: Sequence[Tried], again: Sequence[Tried], empty: Modes) -> Modes:
    """``empty`` with the row of each mode, compared with eager if measured, else with the first.

    ``again``: the runs of later rounds; the first one of eager gives the noise of the losses.
    """
    seen = {item.mode: item.summary for item in tried if item.summary and item.summary.ranks}
    same = same_program(seen)
    repeats = [(item.mode, item.summary) for item in again if item.summary]
    runs = programs(seen, same, repeats)
    by_id = {summary.id: runs[mode] for mode, summary in seen.items()}
    compared = compare(list(seen.values()), labels=list(seen), programs=by_id) if seen else None
    eager = next((item.losses for item in tried if item.mode == EAGER), {})
    second = next((item.losses for item in again if item.mode == EAGER), None)
    rows = []
    for item in tried:
        row = _row(item, compared, same, empty.training_steps)
        apart = drift(item.losses, eager, second) if item.mode != EAGER else None
        if apart is not None and empty.max_drift:
            exceeds = apart.relative is None or apart.relative > empty.max_drift
            row = replace(row, max_drift_exceeded=exceeds)
        rows.append(replace(row, drift=apart))
    first = next(iter(seen.values()), None)
    noise = drift(second, eager) if second else None
    steps = empty.training_steps or USUAL_STEPS
    baseline = _baseline(compared)
    best = recommended(rows, baseline, steps)
    return replace(
        empty,
        rows=tuple(rows),
        baseline=baseline,
        torch=first.what.torch if first else None,
        gpus=first.what.gpus if first else (),
        noise=noise.relative if noise else None,
        recommended=best.mode if best else None,
        recommended_steps=steps if best else None,
        incomparable=_incomparable(seen, compared.incomparable if compared else ()),
    )


def _incomparable(
    seen: Mapping[str, RunSummary], every: Sequence[Incomparable]
) -> tuple[Incomparable, ...]:
    """What differs between the runs. A regional run compiles other functions on purpose."""
    others = [summary for mode, summary in seen.items() if mode != REGIONAL]
    of_others = {each.what for each in incomparable(others, list(map(report, others)))}
    return tuple(each for each in every if each.what != COMPILED_CODE or each.what in of_others)


def candidates(rows: Sequence[Row]) -> list[Row]:
    """The measured modes that may be recommended.

    Not one whose loss drifts too far, or that has the kernels of another.
    """
    return [
        row
        for row in rows
        if row.outcome == "measured"
        and (row.captured or row.mode == EAGER)
        and not row.max_drift_exceeded
        and row.same_as is None
        and row.cost_seconds is not None
    ]


def recommended(rows: Sequence[Row], baseline: str | None, steps: int) -> Row | None:
    """The baseline, unless a mode takes less time than it for ``steps`` steps, for certain.

    No mode is certain to take less time than the one that is recommended. Of several, it is the one
    that compiles least. ``None`` if no compiled mode can be compared with the baseline.
    """
    result = candidates(rows)
    reference = next((row for row in result if row.mode == baseline), None)
    if reference is None or not any(row.captured for row in rows if row.outcome == "measured"):
        return None
    compared = [row for row in result if row is reference or _comparable(row, reference)]
    if result != [reference] and compared == [reference]:
        return None
    unbeaten = [row for row in compared if not any(beats(each, row, steps) for each in compared)]
    if reference in unbeaten:
        return reference
    faster = [row for row in unbeaten if beats(row, reference, steps)]
    return min(faster or unbeaten, key=lambda item: item.cost_seconds or 0.0)


def beats(row: Row, other: Row, steps: int) -> bool:
    """Whether ``row`` takes less time than ``other``, with 95 % confidence."""
    if row is other or not _comparable(row, other):
        return False
    low, step = difference(row.runs, other.runs).low, mean(other.runs)
    if low is None or step is None:
        return False
    costs = (row.cost_seconds or 0.0) - (other.cost_seconds or 0.0)
    return costs < steps * step * (1 - 1 / low)


def _comparable(row: Row, other: Row) -> bool:
    if not row.runs or not other.runs:
        return False
    return difference(row.runs, other.runs).verdict not in (ONCE, DISTURBED)


def _baseline(comparison: Comparison | None) -> str | None:
    """Eager if its step was measured; else the first measured mode."""
    names = [side.label for side in comparison.sides if side.runs] if comparison else []
    return EAGER if EAGER in names else next(iter(names), None)


def _row(
    tried: Tried,
    compared: Comparison | None,
    same: Mapping[str, str],
    training_steps: int | None,
) -> Row:
    row = copied(
        tried,
        Row,
        outcome="nothing",
        summary="",
        peak_resident_bytes=tried.resident_bytes,
        guard_share=tried.guard_share,
        same_as=same.get(tried.mode),
    )
    summary = tried.summary
    if summary is None or not summary.ranks or compared is None:
        return replace(row, outcome="failed") if tried.code else row
    sides = {item.label: item for item in compared.sides}
    side, baseline = sides[tried.mode], sides.get(_baseline(compared) or "")
    row = replace(row, **{name: getattr(side, name) for name in _OF_SIDE})
    row = replace(_with_summary(row, summary), outcome=_outcome(row))
    if training_steps and row.mean_seconds is not None and row.cost_seconds is not None:
        row = replace(row, total_seconds=row.cost_seconds + training_steps * row.mean_seconds)
    if baseline is None or side is baseline:
        return row
    one_program = {side.label, row.same_as}
    if baseline.label not in one_program:
        even = break_even(side, baseline)
        row = replace(row, speed_up=even.difference, break_even=even)
    if DEFAULT in sides and DEFAULT not in {*one_program, baseline.label} and side.label != EAGER:
        row = replace(row, against_default=break_even(side, sides[DEFAULT]))
    return row


def _with_summary(row: Row, summary: RunSummary) -> Row:
    """Add what a ``Side`` does not have."""
    slowest, answers = slowest_of(summary).answer, [rank.answer for rank in summary.ranks]
    pauses, compile = slowest["pauses"], slowest["compile"]
    count, seconds = pauses.get("evaluations"), pauses.get("evaluation_seconds")
    exceptions = ((answer["end"] or {}).get("exception") for answer in answers)
    held = (condition for answer in answers for condition in answer["conditions"])
    return replace(
        row,
        exception=next(filter(None, exceptions), None),
        evaluations=count,
        evaluation_seconds=seconds / count if count and seconds is not None else None,
        evaluation_batch_seconds=pauses.get("evaluation_batch_seconds"),
        compiled=bool(compile["seconds"]),
        wrappings=summary.what.wrappings,
        wrappers=compile.get("wrappers"),
        agent_errors=sum(answer["agent_errors"] or 0 for answer in answers),
        gpus=sum(len(answer["gpus"]) for answer in answers),
        conditions={value["condition"]: value["words"] for value in held},
        summary=summary.summary,
    )


def _outcome(row: Row) -> str:
    """The outcome. A script that ``modes`` ended did not fail; one that was measured may have."""
    if row.ended_by == "itself" and (row.code or row.state in _GONE):
        return "failed"
    if not row.steps:
        return "no_steps"
    return "measured" if row.runs else "unmeasured"
