"""One run of the ``/status`` answer: its ranks together, and how far apart they are."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice
from typing import Any

from warmwatch_monitor.export.answer.rank import rank
from warmwatch_monitor.export.words.deadline import ADVICE, deadline
from warmwatch_monitor.export.words.differences import differences
from warmwatch_monitor.export.words.sentence import run_answer, speaker_of
from warmwatch_monitor.model import RunView, Spread, all_warm, any_compiling, spread

# A record can claim any world size, and seen ranks can leave a gap between each two.
MOST_MISSING_LISTED = 100


def run(view: RunView) -> dict[str, Any]:
    """A run as JSON."""
    missing = view.missing_ranges
    words = run_answer(view)
    return {
        "run": view.run,
        "name": view.who.name,
        "owner": view.who.owner,
        "owner_uid": view.who.owner_uid,
        "state": view.state.value,
        "compiling": any_compiling([view]),
        "warm": all_warm([view]),
        "summary": words.summary,
        "details": list(words.details),
        "compile_gpu_seconds": _sum(one.compile_gpu_seconds for one in view.ranks),
        "compile_joules": _sum(one.compile_joules for one in view.ranks),
        "world_size": view.world_size,
        "missing_ranks": list(islice(chain.from_iterable(missing), MOST_MISSING_LISTED)),
        "missing_ranges": [[gap.start, gap.stop - 1] for gap in missing[:MOST_MISSING_LISTED]],
        "missing_count": sum(map(len, missing)),
        "skew": _skew(view),
        "deadline": _deadline(view),
        "ranks": [rank(one, ended_together=view.ended_together) for one in view.ranks],
    }


def _sum(values: Iterable[float | None]) -> float | None:
    """Of those that are known; ``None`` where none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _deadline(view: RunView) -> dict[str, Any] | None:
    """When the collective gives up in which ranks wait for one that compiles."""
    known = deadline(view, speaker_of(view))
    if known is None:
        return None
    return {
        "backend": known.backend,
        "timeout_seconds": known.timeout_seconds,
        "left_seconds": known.left_seconds,
        "advice": ADVICE,
    }


def _skew(view: RunView) -> dict[str, Any] | None:
    """How far apart the ranks are; ``None`` where there is one alone."""
    ranks = view.ranks
    if len(ranks) < 2:
        return None
    return {
        "compile_seconds": _spread(spread(ranks, lambda one: one.figures.compile.seconds)),
        "compilations": _spread(spread(ranks, lambda one: one.figures.compile.graphs_compiled)),
        "graphs": _spread(spread(ranks, lambda one: one.figures.compile.graphs)),
        "recompiles": _spread(spread(ranks, lambda one: one.figures.compile.recompiles_total)),
        "first_step_at": _spread(spread(ranks, lambda one: one.figures.steps.first_at)),
        "differences": differences(view),
    }


def _spread(of: Spread | None) -> dict[str, Any] | None:
    if of is None:
        return None
    return {
        "min": of.least,
        "min_rank": of.least_rank,
        "max": of.greatest,
        "max_rank": of.greatest_rank,
    }
