"""Where the time of a rank went, in shares that add up to it, and what compiling cost. Pure.

Steps and compile time are measured separately and never overlap. Other reported times are cut to
the rest, most certain first; what remains is not known. Saves and evaluations within the first
warm-up, or before it, are no part of its share. Frameworks or the user report evaluations
and saves; compile time within an evaluation counts as compile time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from warmwatch.shared.states import ENDED, State
from warmwatch_monitor.commands.report.compilations import is_after
from warmwatch_monitor.commands.report.parts import Cost, Goodput, Priced, Share
from warmwatch_monitor.model.records import FEWEST_STEPS

CLEAN, DATA, STALLS = "clean steps", "waiting for data", "stalls"
WARMUP, LATER = "warm-up", "compiling after the warm-up"  # late first compilations, too
GAPS = "unexplained gaps"  # long steps without a known cause; evaluations may be among them
EVALUATION, SAVING, NOTHING = "evaluation", "saving", "unaccounted"
BEFORE, AFTER = "before the first step", "after the last step"
PROMPT = "waiting at Python's prompt"
CELLS = "between the cells of a notebook"  # which then waits for its user
NAMES = (
    *(CLEAN, DATA, GAPS, STALLS, BEFORE, WARMUP, LATER, EVALUATION, SAVING, CELLS, AFTER),
    NOTHING,
)

_CLOCK = 1e-3  # seconds; both are of one clock, rounded


# PyTorch's records lack the time around them: of late compile time, this much at most.
_AROUND_SECONDS, _AROUND_SHARE = 0.1, 0.02


def after_warm_seconds(rank: Mapping[str, Any], compiled: Iterable[Priced]) -> float:
    """Compile time after the end of the first warm-up: that of PyTorch's records, as everywhere.

    If they lack more than the time around them, it is the compile time that exceeds the warm-up's
    wall time.
    """
    first, whole = rank["warmup"].get("first"), float(rank["compile"]["seconds"])
    if not first:
        return 0.0
    later = sum(
        compilation.seconds or 0.0
        for compilation in compiled
        if is_after(compilation, first["ended_at"])
    )
    exceeding = whole - float(first["seconds"])
    around = max(_AROUND_SECONDS, _AROUND_SHARE * later) if later else 0.0
    return min(later if exceeding <= later + around else exceeding, whole)


def span(rank: Mapping[str, Any], seen: float) -> float | None:
    """From attaching to its end, or to the last poll."""
    attached = rank.get("attached_at")
    if attached is None:
        return None
    over = State(rank["state"]) in ENDED and rank.get("since") is not None
    return float(max(0.0, (rank["since"] if over else seen) - attached))


def _has_prompt(rank: Mapping[str, Any]) -> bool:
    """Whether a long step may be a wait at Python's prompt, which nothing reports."""
    return any(step.get("prompt") for step in rank["long_steps"])


def whole_step_seconds(rank: Mapping[str, Any], seen: float) -> float | None:
    """The time since the first warm-up for each step in it: evaluations, saves, recompiles and the
    end are part of it. ``None`` if it was never warm, for few steps only, if eager steps came
    before the warm-up (their number is not known), or if it waited for a user, as a notebook does.
    """
    first, whole = rank["warmup"].get("first"), span(rank, seen)
    waits = rank["pauses"].get("between_cells_seconds") or _has_prompt(rank)
    if not first or whole is None or first["steps"] is None or waits:
        return None
    stepped = rank["step_seconds"].get("first_at")
    if stepped is not None and stepped + _CLOCK < first["ended_at"] - first["seconds"]:
        return None
    steps = rank["steps"] - first["steps"]
    seconds = rank["attached_at"] + whole - first["ended_at"]
    return float(seconds / steps) if steps >= FEWEST_STEPS and seconds > 0 else None


def goodput(rank: Mapping[str, Any], compiled: Sequence[Priced], seen: float) -> Goodput | None:
    """``None`` if even the length of the run is not known."""
    whole = span(rank, seen)
    if not whole:
        return None
    pauses = rank["pauses"]
    untold = tuple(
        name
        for name, key in ((DATA, "data_seconds"), (EVALUATION, "evaluation_seconds"))
        if pauses.get(key) is None
    )
    untold += (PROMPT,) * _has_prompt(rank)
    if rank["step_seconds"].get("clean_seconds") is None and rank["steps"]:
        untold = (CLEAN, *untold)
    within = _compiling_evaluations(rank, compiled)
    shares = _shares(whole, compiled, rank, seen, within)
    return Goodput(
        seconds=whole,
        shares=tuple(
            Share(name=name, seconds=shares[name], ratio=shares[name] / whole) for name in NAMES
        ),
        untold=untold,
        evaluation_compile_seconds=min(within, pauses.get("evaluation_seconds") or 0.0),
        warmup_pause_seconds=(pauses.get("warmup_seconds") or 0.0)
        if rank["warmup"].get("first")
        else 0.0,
    )


def _shares(
    whole: float,
    compiled: Sequence[Priced],
    rank: Mapping[str, Any],
    seen: float,
    compiled_evaluating: float,
) -> dict[str, float]:
    pauses, first = rank["pauses"], rank["warmup"].get("first")
    left = _Left(whole)
    stepping = left.take(rank["step_seconds"].get("clean_seconds"))
    later = left.take(after_warm_seconds(rank, compiled))
    within = max(0.0, rank["compile"]["seconds"] - later)
    compiling = left.take(min(within, first["seconds"]) if first else within)
    evaluation = left.take((pauses.get("evaluation_seconds") or 0.0) - compiled_evaluating)
    saving = left.take(pauses.get("checkpoint_seconds"))
    stalled = left.take(seen - rank["since"] if rank["state"] == State.STALLED.value else 0.0)
    # warm-up time without compilation: steps and other work
    began = _before(rank, compiled)
    within_warmup = pauses.get("warmup_seconds") or 0.0 if first else evaluation + saving
    rest = left.take((_warmup_seconds(rank, began) or 0.0) - compiling - within_warmup)
    before = left.take((began or 0.0) - (pauses.get("before_seconds") or 0.0))
    in_steps = _Left(stepping)
    gaps = in_steps.take(sum(map(_unexplained, rank["long_steps"])))
    data = in_steps.take(pauses.get("data_seconds"))
    return {
        CLEAN: in_steps.seconds,
        DATA: data,
        GAPS: gaps,
        STALLS: stalled,
        BEFORE: before,
        WARMUP: compiling + rest,
        LATER: later,
        EVALUATION: evaluation,
        SAVING: saving,
        AFTER: left.take(_after(rank)),
        CELLS: left.take(pauses.get("between_cells_seconds")),
        NOTHING: left.seconds,
    }


def _compiling_evaluations(rank: Mapping[str, Any], compiled: Sequence[Priced]) -> float:
    """Compile time within evaluations, which their durations include, also that of a compilation
    without a record: it goes on, or the process ended in it.
    """
    recorded = sum(priced.seconds or 0.0 for priced in compiled)
    within = sum(priced.seconds or 0.0 for priced in compiled if priced.evaluating)
    unrecorded = max(0.0, float(rank["compile"]["seconds"]) - recorded)
    unfinished = float(rank["pauses"].get("evaluation_compiling_seconds") or 0.0)
    return within + min(unfinished, unrecorded)


def _warmup_seconds(rank: Mapping[str, Any], began: float | None) -> float | None:
    """The first warm-up; of a rank that was never warm, up to its last compile activity."""
    if first := rank["warmup"].get("first"):
        return float(first["seconds"])
    ended = rank["compile"].get("last_end_at")
    return None if ended is None or began is None else float(ended - rank["attached_at"] - began)


def _before(rank: Mapping[str, Any], compiled: Sequence[Priced]) -> float | None:
    """Imports and model building: from attaching to the first step or compilation."""
    attached, steps = rank["attached_at"], rank["step_seconds"]
    if first := rank["warmup"].get("first"):
        return float(first["ended_at"] - first["seconds"] - attached)
    # the warm-up has not ended, or failed
    begins = [compilation.began for compilation in compiled]
    if rank["state"] == State.COMPILING.value and rank.get("since") is not None:
        begins.append(rank["since"])
    if steps.get("first_at") is not None:
        begins.append(steps["first_at"] - (steps["first"] or 0))
    if since := (rank.get("end") or {}).get("compiling_since"):
        begins.append(since)
    return float(min(begins) - attached) if begins else None


def _after(rank: Mapping[str, Any]) -> float | None:
    """From the last step to the end; that of a lost rank is only when it was noticed."""
    state, last = State(rank["state"]), rank["step_seconds"].get("last_at")
    if state not in ENDED or state is State.LOST or not last or rank.get("since") is None:
        return None
    return float(rank["since"] - last)


class _Left:
    """The time that is still unassigned."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def take(self, wanted: float | None) -> float:
        """Assign ``wanted`` seconds, or what is left."""
        assigned = min(max(wanted or 0.0, 0.0), self.seconds)
        self.seconds -= assigned
        return assigned


_EXPLAINED = ("usual", "checkpoint", "evaluation", "between_cells", "data")


def _unexplained(step: Mapping[str, Any]) -> float:
    """Extra time of a long step that nothing reported explains."""
    explained = sum(step[f"{what}_seconds"] or 0.0 for what in _EXPLAINED)
    return 0.0 if step["evaluation"] else max(0.0, float(step["seconds"]) - explained)


ALL = "compiling"
_ALL_OF_IT = 0.995

Rank = Mapping[str, Any]


def costs(ranks: Sequence[Rank], late: Sequence[float], slowest: int) -> tuple[Cost, ...]:
    """The costs of all ``ranks``; seconds are those of the ``slowest``, an index into ``ranks``.

    ``late``: the compile time of each rank after its first warm-up. An ended warm-up counts in
    wall time, from the first activity's begin to the last one's end, including what ran between
    them. An open warm-up counts its compile time.
    """
    compiling = [float(rank["compile"]["seconds"]) for rank in ranks]
    if not any(compiling):
        return ()
    early = [spent - after for spent, after in zip(compiling, late, strict=True)]
    first = [rank["warmup"].get("first") for rank in ranks]
    warming = [
        float(span["seconds"]) if span else spent for span, spent in zip(first, early, strict=True)
    ]
    gpus = [len(rank["gpus"]) for rank in ranks]
    energy = [
        value for rank in ranks if (value := rank["energy"]) and value["compile_joules"] is not None
    ]
    joules = sum(value["compile_joules"] for value in energy)
    covered = sum(value["covered_seconds"] for value in energy) / sum(compiling)

    def cost(what: str, seconds: list[float], compiled: Sequence[float]) -> Cost:
        """The energy was measured for all compiling, and is split by compile time."""
        share = min(1.0, sum(compiled) / sum(compiling))
        spent = sum(length * count for length, count in zip(seconds, gpus, strict=True))
        steps = first[slowest]["steps"] if what == WARMUP and first[slowest] else None
        return Cost(
            what=what,
            seconds=seconds[slowest],
            steps=steps,
            gpu_seconds=spent if any(gpus) else None,
            joules=joules * share if energy else None,
            estimated=bool(energy) and share < _ALL_OF_IT,
            covered=min(1.0, covered) if energy else None,
        )

    made = [cost(WARMUP, warming, early)]
    if any(late):
        made += [cost(LATER, list(late), late), cost(ALL, compiling, compiling)]
    return tuple(made)
