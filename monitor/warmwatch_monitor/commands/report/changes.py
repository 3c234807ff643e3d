"""What changed since the last comparable run, and its cost in the first warm-up. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from warmwatch_monitor.commands.report.compilations import functions, priced
from warmwatch_monitor.commands.report.parts import Changed, ChangedFact, ChangedFunction, Function
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
    ("inductor cache", lambda what: what.caches.get("inductor")),
    ("triton cache", lambda what: what.caches.get("triton")),
    ("compile threads", lambda what: what.compile_threads),
)


def changed(now: RunSummary, before: RunSummary, rank: int | None) -> Changed | None:
    """Changes of ``rank`` in both, else of the first; ``None`` if one was never warm."""
    mine, other = _of(now, rank), _of(before, rank)
    if mine is None or other is None:
        return None
    took, took_before = _warmup(mine)["seconds"], _warmup(other)["seconds"]
    return Changed(
        id=before.id,
        run=before.run,
        began=before.began,
        warmup_seconds=took,
        before_seconds=took_before,
        facts=tuple(_facts(now, before)),
        functions=tuple(_functions(mine, other)),
    )


def _of(summary: RunSummary, rank: int | None) -> RankSummary | None:
    ranks = {value.rank: value for value in summary.ranks}
    item = ranks.get(rank if rank is not None else 0) or ranks.get(min(ranks, default=0))
    return item if item is not None and _warmup(item).get("seconds") else None


def _warmup(rank: RankSummary) -> Mapping[str, float]:
    return rank.answer.get("warmup", {}).get("first") or {}


def _facts(now: RunSummary, before: RunSummary) -> list[ChangedFact]:
    """Facts known for both that differ. The driver counts only with a known GPU."""
    result = []
    for name, read in FACTS:
        mine, other = read(now.what), read(before.what)
        if mine is not None and other is not None and mine != other:
            result.append(ChangedFact(what=name, now=mine, before=other))
    if now.host and before.host and now.host != before.host:
        result.append(ChangedFact(what="host", now=now.host, before=before.host))
    return result


def _functions(now: RankSummary, before: RankSummary) -> list[ChangedFunction]:
    """All functions of either first warm-up, largest increase first."""
    mine, other = _compiled(now), _compiled(before)
    codes, codes_before = _codes(now), _codes(before)
    names = dict.fromkeys([*mine, *other])
    made = [
        _function(key, mine.get(key), other.get(key), codes.get(key), codes_before.get(key))
        for key in names
    ]
    return sorted(made, key=lambda function: -(function.seconds - function.before_seconds))


def _function(
    key: _Key,
    now: Function | None,
    before: Function | None,
    code: str | None,
    code_before: str | None,
) -> ChangedFunction:
    spent, spent_before = (function.phase_seconds if function else {} for function in (now, before))
    phases = dict.fromkeys([*spent, *spent_before])
    latest = now or before
    assert latest is not None
    return ChangedFunction(
        name=key[0],
        file=key[1],
        line=latest.line,
        seconds=now.seconds if now else 0.0,
        before_seconds=before.seconds if before else 0.0,
        phases={name: spent.get(name, 0.0) - spent_before.get(name, 0.0) for name in phases},
        times=len(now.times) if now else 0,
        before_times=len(before.times) if before else 0,
        ops=_ops(now),
        before_ops=_ops(before),
        code_changed=None if code is None or code_before is None else code != code_before,
    )


def _compiled(rank: RankSummary) -> dict[_Key, Function]:
    """The cost of each function in the first warm-up; ignores its line."""
    until = _warmup(rank)["ended_at"] + _LATE
    result: dict[_Key, Function] = {}
    for function in functions(priced(each for each in rank.compiled if each.ended <= until)):
        result.setdefault((function.name, function.file), function)
    return result


def _codes(rank: RankSummary) -> dict[_Key, str]:
    return {
        (compilation.name, compilation.file): compilation.code
        for compilation in rank.compiled
        if compilation.code
    }


def _ops(function: Function | None) -> int | None:
    """Operators of its graphs; ``None`` if not known for one of them."""
    numbers = [each.ops for each in function.times] if function else []
    return sum(ops for ops in numbers if ops) if numbers and None not in numbers else None
