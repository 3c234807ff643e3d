"""What changed since the last comparable run, and its cost in the first warm-up. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from warmwatch.shared.phrases import without_line
from warmwatch_monitor.commands.report.compilations import added, cache_use, priced
from warmwatch_monitor.commands.report.parts import Changed, ChangedFact, ChangedFunction, Priced
from warmwatch_monitor.model.run_summary import Provenance, RankSummary, RunSummary

_LATE = 0.1  # seconds: a compilation's journal line may follow the end of its activity
_Key = tuple[str | None, str | None]

# name -> its value, as text or a number
FACTS: tuple[tuple[str, Callable[[Provenance], str | int | None]], ...] = (
    ("torch", lambda what: what.torch),
    ("CUDA", lambda what: what.cuda),
    ("Triton", lambda what: what.triton),
    ("driver", lambda what: what.driver),
    ("Python", lambda what: what.python),
    ("commit", lambda what: what.commit),
    ("triton cache", lambda what: what.caches.get("triton")),
    ("compile threads", lambda what: what.compile_threads),
)


def changed(now: RunSummary, before: RunSummary, rank: int | None) -> Changed | None:
    """Changes of ``rank`` in both, else of the first; ``None`` if one was never warm."""
    mine, other = _of_rank(now, rank), _of_rank(before, rank)
    if mine is None or other is None:
        return None
    return Changed(
        id=before.id,
        run=before.run,
        began=before.began,
        warmup_seconds=_warmup(mine)["seconds"],
        before_seconds=_warmup(other)["seconds"],
        facts=tuple(
            _facts(
                {"inductor cache": _cache_use(now, mine), **_read(now)},
                {"inductor cache": _cache_use(before, other), **_read(before)},
            )
        ),
        functions=tuple(_functions(_compiled(mine), _compiled(other))),
    )


def _of_rank(summary: RunSummary, rank: int | None) -> RankSummary | None:
    ranks = {value.rank: value for value in summary.ranks}
    item = ranks.get(rank or 0) or ranks.get(min(ranks, default=0))
    return item if item is not None and _warmup(item).get("seconds") else None


def _warmup(rank: RankSummary) -> Mapping[str, float]:
    return rank.answer.get("warmup", {}).get("first") or {}


def _read(summary: RunSummary) -> dict[str, str | int | None]:
    return {**{name: read(summary.what) for name, read in FACTS}, "host": summary.host}


def _facts(
    now: Mapping[str, str | int | None], before: Mapping[str, str | int | None]
) -> Iterator[ChangedFact]:
    """Facts known for both that differ. The driver counts only with a known GPU."""
    for name, mine in now.items():
        other = before[name]
        if mine is not None and other is not None and mine != other:
            yield ChangedFact(what=name, now=mine, before=other)


def _cache_use(summary: RunSummary, rank: RankSummary) -> str | None:
    """Of its first warm-up."""
    until = _warmup(rank)["ended_at"] + _LATE
    return cache_use((each for each in rank.compiled if each.ended <= until), summary.what.caches)


def _compiled(rank: RankSummary) -> Mapping[_Key, list[Priced]]:
    """What compiled in the first warm-up, by function; a line may have moved, and is ignored."""
    until, groups = _warmup(rank)["ended_at"] + _LATE, defaultdict[_Key, list[Priced]](list)
    for compilation in priced(each for each in rank.compiled if each.ended <= until):
        name = compilation.name and without_line(compilation.name)
        groups[name, compilation.file].append(compilation)
    return groups


def _functions(
    now: Mapping[_Key, list[Priced]], before: Mapping[_Key, list[Priced]]
) -> list[ChangedFunction]:
    """All functions of either first warm-up, largest increase first."""
    made = [_function(now[key], before[key]) for key in dict.fromkeys([*now, *before])]
    return sorted(made, key=lambda function: -function.difference)


def _function(now: Sequence[Priced], before: Sequence[Priced]) -> ChangedFunction:
    first = (now or before)[0]
    phases, phases_before = (added(each.phase_seconds for each in run) for run in (now, before))
    codes, codes_before = ({each.code for each in run if each.code} for run in (now, before))
    lines = {each.line for each in now or before}
    names = dict.fromkeys([*phases, *phases_before])
    return ChangedFunction(
        name=first.name,
        file=first.file,
        line=lines.pop() if len(lines) == 1 else None,
        seconds=sum(each.seconds or 0.0 for each in now),
        before_seconds=sum(each.seconds or 0.0 for each in before),
        phases={name: phases.get(name, 0.0) - phases_before.get(name, 0.0) for name in names},
        times=len(now),
        before_times=len(before),
        ops=_ops(now),
        before_ops=_ops(before),
        code_changed=codes != codes_before if codes and codes_before else None,
    )


def _ops(compilations: Sequence[Priced]) -> int | None:
    """Operators of all graphs; ``None`` if not known for one of them."""
    numbers = [each.ops for each in compilations if each.ops is not None]
    return sum(numbers) if numbers and len(numbers) == len(compilations) else None
