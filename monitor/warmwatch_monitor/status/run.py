"""One run of the ``/status`` document: ranks, missing ranks, how far apart the ranks are."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice

from warmwatch_monitor.model import RunView, all_warm, any_compiling, spread
from warmwatch_monitor.status.rank import rank
from warmwatch_monitor.status.schema import status as schema
from warmwatch_monitor.status.words.progress import deadline
from warmwatch_monitor.status.words.run import differences, run_answer, speaker_of

# A record can claim any world size, and the seen ranks can have gaps between them.
MOST_MISSING_LISTED = 100


def run_document(view: RunView) -> schema.Run:
    missing = view.missing_ranges
    words = run_answer(view)
    return schema.Run(
        run=view.run,
        name=view.who.name,
        owner=view.who.owner,
        owner_uid=view.who.owner_uid,
        state=view.state,
        compiling=any_compiling([view]),
        warm=all_warm([view]),
        summary=words.summary,
        details=list(words.details),
        limited_by=view.limited_by,
        compile_gpu_seconds=_sum(one.compile_gpu_seconds for one in view.ranks),
        compile_joules=_sum(one.compile_joules for one in view.ranks),
        world_size=view.world_size,
        missing_ranks=list(islice(chain.from_iterable(missing), MOST_MISSING_LISTED)),
        missing_ranges=[(gap.start, gap.stop - 1) for gap in missing[:MOST_MISSING_LISTED]],
        missing_count=sum(map(len, missing)),
        skew=_skew(view),
        deadline=deadline(view, speaker_of(view)),
        ranks=[rank(one, ended_together=view.ended_together) for one in view.ranks],
    )


def _sum(values: Iterable[float | None]) -> float | None:
    """The sum of the known values; ``None`` if none is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _skew(view: RunView) -> schema.Skew | None:
    """How far apart the ranks are; ``None`` for a single rank."""
    ranks = view.ranks
    if len(ranks) < 2:
        return None
    return schema.Skew(
        compile_seconds=spread(ranks, lambda one: one.figures.compile.seconds),
        compilations=spread(ranks, lambda one: one.figures.compile.graphs_compiled),
        graphs=spread(ranks, lambda one: one.figures.compile.graphs),
        recompiles=spread(ranks, lambda one: one.figures.compile.recompiles_total),
        first_step_at=spread(ranks, lambda one: one.figures.steps.first_at),
        step_seconds=spread(view.living, lambda one: one.figures.steps.length),
        differences=differences(view),
    )
