"""Which modes ran the same program, so that their steps differ only by noise. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from warmwatch_monitor.compare.comparison import EAGER, step_of
from warmwatch_monitor.compare.noise import Repeats
from warmwatch_monitor.model.run_summary import RunSummary
from warmwatch_monitor.report.assembly import slowest_of

DEFAULT, REGIONAL = "default", "regional"
# without a GPU, the kernels are those of the other mode: there are no CUDA graphs
WITHOUT_CUDA_GRAPHS = {"reduce-overhead": DEFAULT, "max-autotune": "max-autotune-no-cudagraphs"}


def same_program(seen: Mapping[str, RunSummary]) -> dict[str, str]:
    """For each mode that ran the program of another measured mode, that mode."""
    measured = {mode: one for mode, one in seen.items() if step_of(one) is not None}
    found = {mode: _program(mode, measured) for mode in measured}
    return {mode: one for mode, one in found.items() if one != mode and one in measured}


def _program(mode: str, seen: Mapping[str, RunSummary]) -> str:
    if mode in WITHOUT_CUDA_GRAPHS and not any(one.answer["gpus"] for one in seen[mode].ranks):
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


AGAIN = ("again", "a third time")  # eager, for the noise


def repeats(
    seen: Mapping[str, RunSummary], same: Mapping[str, str], again: Sequence[RunSummary]
) -> tuple[Repeats, ...]:
    """The programs that ran more than once. ``again``: later eager runs."""
    runs: dict[str, list[tuple[str, RunSummary]]] = {}
    for mode, one in seen.items():
        runs.setdefault(same.get(mode, mode), []).append((mode, one))
    if EAGER in runs:
        runs[EAGER] += [(f"{EAGER} {words}", one) for words, one in zip(AGAIN, again, strict=False)]
    made = (_repeats(program, of) for program, of in runs.items())
    return tuple(one for one in made if len(one.seconds) > 1)


def _repeats(program: str, runs: list[tuple[str, RunSummary]]) -> Repeats:
    known = [(label, step) for label, one in runs if (step := step_of(one))]
    labels, seconds = zip(*known, strict=True) if known else ((), ())
    return Repeats(program=program, runs=labels, seconds=seconds)
