"""Which earlier runs are comparable with a run, and which of them serve its estimates. Pure.

Two criteria: ``is_comparable``: it is the same training, so that a difference is of interest.
``compiles_the_same``: it also compiles under the same conditions, so that it takes as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from warmwatch_monitor.figures.declared import copied
from warmwatch_monitor.model.figures import Done, EarlierWarmup
from warmwatch_monitor.model.journal import Wrapping
from warmwatch_monitor.model.run_summary import (
    Compiled,
    Provenance,
    RankSummary,
    RunSummary,
)


class Known(Struct, frozen=True, kw_only=True):
    """What is known of a run at the time of the comparison; fields as in ``RunSummary``.

    ``graphs``: the functions that it compiled, with the operators of their first graph if known.
    """

    run: str
    owner: str | None = None
    host: str | None = None
    what: Provenance = Provenance()
    graphs: Mapping[str, int | None] = field(default_factory=dict)


def known_of(summary: RunSummary) -> Known:
    compiled = (compilation for rank in summary.ranks for compilation in rank.compiled)
    return Known(
        run=called(summary),
        owner=summary.owner,
        host=summary.host,
        what=summary.what,
        graphs=first_graphs((compilation.name, compilation.ops) for compilation in compiled),
    )


def first_graphs(compiled: Iterable[tuple[str | None, int | None]]) -> dict[str, int | None]:
    """``Known.graphs`` from the names and operators of compilations, in order."""
    counts: dict[str, int | None] = {}
    for name, ops in compiled:
        if name and counts.get(name) is None:
            counts[name] = ops
    return counts


def called(summary: RunSummary) -> str:
    """The run's name without its owner."""
    return summary.run.removesuffix(f"@{summary.owner}")


def program_name(summary: RunSummary) -> str:
    """The run's name without its owner and without a number that it got beside a run of its name.

    Two launches of one command are ``gan`` and ``gan-2`` if they run at the same time.
    """
    return summary.what.unnumbered or called(summary)


def is_comparable(now: Known, before: RunSummary) -> bool:
    """Whether it is the same training on the same kind of machine; versions may differ.

    Arguments are not recorded. A model of another depth shows in the size of its graphs.
    """
    mine, other = now.what, before.what
    named = now.run == called(before) or (mine.script is not None and mine.script == other.script)
    theirs = known_of(before).graphs
    return (
        named
        and not _differ(now.owner, before.owner)
        and not _differ(mine.script, other.script)
        and set(mine.gpus) == set(other.gpus)  # a set: one of them may list a single rank's only
        and mine.world_size == other.world_size
        and _same_calls(mine.wrappings, other.wrappings)
        and not (now.graphs and theirs and now.graphs.keys().isdisjoint(theirs))
        and all(_near(ops, theirs.get(name)) for name, ops in now.graphs.items())
    )


def compiles_the_same(now: Known, before: RunSummary) -> bool:
    """Whether compiling takes as long now as it did then."""
    mine, other = now.what, before.what
    return (
        is_comparable(now, before)
        and mine.torch == other.torch
        and not _differ(mine.triton, other.triton)
        and _same_caches(mine.caches, other.caches)
        and not _differ(mine.compile_threads, other.compile_threads)
        and (bool(mine.gpus) or now.host == before.host)  # a CPU training depends on the host
    )


def _same_caches(mine: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether each cache was cold or warm in both. Triton's is unknown until it is imported."""
    shared = mine.keys() & other.keys()
    return "inductor" in shared and all(mine[name] == other[name] for name in shared)


def first_warmup(summary: RunSummary, rank: int) -> EarlierWarmup | None:
    """The first warm-up of ``rank``, else of the first rank; ``None`` if it did not end."""
    ranks = {value.rank: value for value in summary.ranks}
    item = ranks.get(rank) or ranks.get(min(ranks, default=0))
    first = None if item is None else item.answer.get("warmup", {}).get("first")
    if item is None or not first or not first.get("seconds"):
        return None
    until = first["ended_at"] + _LATE
    compiled = [copied(each, Done) for each in item.compiled if each.ended <= until]
    later = [each for each in item.compiled if each.ended > until]
    return EarlierWarmup(
        seconds=first["seconds"],
        phase_seconds=_phases(item, later, first["seconds"]),
        compiled=None if item.left_out else tuple(compiled),
    )


_OTHER_MODEL = 1.5  # times as many operators in the first graph of a function
_LATE = 0.1  # seconds: the line of a compilation may come after the end of its activity


def _phases(rank: RankSummary, later: Iterable[Compiled], seconds: float) -> Mapping[str, float]:
    """Seconds by phase of the first warm-up: all seconds, minus those of ``later``."""
    spent = dict(rank.answer.get("compile", {}).get("phase_seconds") or {})
    for each in later:
        for name, took in each.phase_seconds.items():
            spent[name] = max(0.0, spent.get(name, 0.0) - took)
    whole = sum(spent.values())
    shrink = min(1.0, seconds / whole) if whole else 1.0  # later phases may be incomplete
    return {name: took * shrink for name, took in spent.items() if took}


def _same_calls(mine: Iterable[Wrapping], other: Iterable[Wrapping]) -> bool:
    """Whether both called ``torch.compile`` in the same ways; one may not have made all calls."""
    ways, two = _ways(mine), _ways(other)
    return bool(ways) == bool(two) and (ways <= two or two <= ways)


def _ways(wrappings: Iterable[Wrapping]) -> set[tuple[object, ...]]:
    """The distinct ways in which ``torch.compile`` was called."""
    return {(w.mode, w.backend, w.dynamic, w.fullgraph, w.options) for w in wrappings}


def _near(number: int | None, other: int | None) -> bool:
    """Whether two graphs may be of one model, changed a little; one of them may not be known."""
    return not number or not other or max(number, other) <= _OTHER_MODEL * min(number, other)


def _differ(value: object, other: object) -> bool:
    """Whether both are known and differ."""
    return value is not None and other is not None and value != other
