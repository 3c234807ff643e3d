"""Which modes ran the same program, so that their steps differ only by noise. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from warmwatch_monitor.commands.compare.comparison import runs_of, step_of
from warmwatch_monitor.commands.compare.difference import Run
from warmwatch_monitor.commands.report.assembly import slowest_of
from warmwatch_monitor.model.run_summary import RunSummary

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
