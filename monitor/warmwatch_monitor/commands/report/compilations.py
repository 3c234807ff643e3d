"""Compilations of a rank, each with its cost, combined by function. Pure.

Also what changed since the last comparable run, and its cost in the first warm-up.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from warmwatch.shared.advice import advice_for, cause, subjects
from warmwatch.shared.phrases import resumed, without_line
from warmwatch.shared.verdict import REPEATED_STEPS
from warmwatch_monitor.commands.report.parts import (
    Changed,
    ChangedFact,
    ChangedFunction,
    Function,
    Priced,
    Recompiled,
)
from warmwatch_monitor.figures.compile import OF_GRAPHS, is_without_grad, recompiles_now
from warmwatch_monitor.figures.declared import copied, total
from warmwatch_monitor.figures.rank import Place
from warmwatch_monitor.model.records import families
from warmwatch_monitor.model.run_summary import Compiled, Provenance, RankSummary, RunSummary
from warmwatch_monitor.output.amounts import WHOLE, if_known, own_words, plain_reason

# of a family, the first known value
_FIRST_KNOWN = (
    *("name", "file", "line", "reason", "category", "cache"),
    *("failure", "failure_reason", "failure_hint", "failed_at"),
)
_Function = tuple[str | None, str | None, int | None]
_CHANGING = ("shape", "python_value", "module_state")  # categories that a varying value explains


def priced(compiled: Iterable[Compiled]) -> tuple[Priced, ...]:
    """Each compilation with everything that belongs to it."""
    records = tuple(compiled)
    return tuple(_priced([records[at] for at in family]) for family in families(records))


def _priced(parts: Sequence[Compiled]) -> Priced:
    first = parts[0]
    compiled = [part for part in parts if part.kind in OF_GRAPHS and not part.at_limit]
    known = {
        name: next((value for part in parts if (value := getattr(part, name)) is not None), None)
        for name in _FIRST_KNOWN
    }
    return copied(
        first,
        Priced,
        **known,
        began=first.ended - (first.seconds or 0.0),
        ended=max(part.ended for part in parts),
        seconds=total(part.seconds for part in parts),
        kinds=tuple(part.kind for part in parts),
        plain=next(filter(None, map(plain_reason, parts)), None),
        compilations=len(compiled),
        cache_hits=sum(part.cache == "hit" for part in parts),
        cache_misses=sum(part.cache == "miss" for part in parts),
        phase_seconds=added(part.phase_seconds for part in parts),
        ops=total(part.ops for part in parts),
        kernels=total(part.kernels for part in parts),
        slowest_kernels=tuple(kernel for part in parts for kernel in part.slowest_kernels),
    )


def is_after(compilation: Priced, moment: float | None) -> bool:
    """Whether it ended after ``moment``, the end of an activity; its journal line comes later."""
    return moment is not None and compilation.began > moment


def added(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Seconds by phase, longest first."""
    seconds = Counter[str]()
    for part in parts:
        seconds.update(part)
    return dict(seconds.most_common())


def functions(compilations: Iterable[Priced]) -> tuple[Function, ...]:
    """The cost of each function, most expensive first."""
    groups = defaultdict[_Function, list[Priced]](list)
    for compilation in compilations:
        groups[compilation.function].append(compilation)
    made = (
        Function(
            name=name,
            file=file,
            line=line,
            seconds=sum(priced.seconds or 0.0 for priced in times),
            compilations=sum(priced.compilations for priced in times),
            failures=sum(priced.failure is not None for priced in times),
            cache_hits=sum(priced.cache_hits for priced in times),
            cache_misses=sum(priced.cache_misses for priced in times),
            phase_seconds=added(priced.phase_seconds for priced in times),
            times=tuple(times),
        )
        for (name, file, line), times in groups.items()
    )
    return tuple(sorted(made, key=lambda function: -function.seconds))


def recompiled(
    compilations: Sequence[Priced],
    varying: Sequence[Mapping[str, Any]],
    warm_at: float | None,
    first_began: float | None = None,
) -> tuple[Recompiled, ...]:
    """Recompiles by function, category and cause, most expensive first.

    ``varying``: dimensions that changed, as in ``/status``. ``warm_at``: when the first
    warm-up was over. ``first_began``: when step 1 began.
    """
    trained = _trained(compilations)
    groups = defaultdict[tuple[_Function, str, bool, Any], list[Priced]](list)
    for compilation in compilations:
        if compilation.category:
            between_steps = (
                compilation.evaluating
                or is_without_grad(compilation.id, compilation.reason, trained)
                or (first_began is not None and compilation.ended <= first_began)
            )
            why = cause(compilation.category, compilation.kinds[0], compilation.reason)
            key = compilation.function, compilation.category, between_steps, why
            groups[key].append(compilation)
    made = (
        _group(times, varying, warm_at, between_steps=between_steps)
        for (_, _, between_steps, _), times in groups.items()
    )
    return tuple(sorted(made, key=lambda recompiled: -recompiled.seconds))


def unfinished(
    rank: Mapping[str, Any], compiled: Sequence[Priced], warm_at: float | None, seen: float
) -> tuple[Recompiled, ...]:
    """The recompile that goes on, or in which the rank ended: it has no record of PyTorch's."""
    since, end = rank.get("since"), rank.get("end")
    if not recompiles_now(rank["compile"]):
        return ()
    target, until = rank["compile"]["underway"], since if end else seen
    began = end["compiling_since"] if end else None
    if began is None:  # activities follow each other
        began = max(since or 0.0, *(compilation.ended for compilation in compiled), 0.0)
    evaluating = rank["pauses"].get("evaluation_compiling_seconds") is not None
    reason = target["reason"]
    made = Recompiled(
        category=target["category"] or "other",
        count=1,
        seconds=max(0.0, until - began) if until else 0.0,
        name=target["name"],
        file=target["file"],
        line=target["line"],
        callers=(target["caller"],) if target["caller"] is not None else (),
        steps=(rank["steps"],),
        between_steps=evaluating or is_without_grad(None, reason, _trained(compiled)),
        reasons=(target["plain"] or own_words(reason, WHOLE),),
        advice=target["advice"],
        after_warm=int(warm_at is not None and began > warm_at),
        unfinished=True,
    )
    return (made,)


def _trained(compilations: Iterable[Priced]) -> set[str]:
    """The ids of those with a recorded backward."""
    return {priced.id for priced in compilations if priced.id and "backward" in priced.kinds}


def cache_use(compiled: Iterable[Compiled], caches: Mapping[str, str]) -> str | None:
    """Whether lookups in Inductor's cache ``mostly hit`` or ``mostly missed``; ``None`` if unknown.

    A cache that was not empty may have no entry for this run. ``caches``: as in ``Provenance``.
    """
    verdicts = Counter(compilation.cache for compilation in compiled)
    if verdicts["hit"] or verdicts["miss"]:
        return "mostly hit" if verdicts["hit"] > verdicts["miss"] else "mostly missed"
    return "mostly missed" if caches.get("inductor") == "cold" else None


def reason_of(compilation: Priced) -> str:
    """In plain words if available, else in PyTorch's; empty without one."""
    return compilation.plain or own_words(compilation.reason or "", WHOLE)


def _group(
    times: Sequence[Priced],
    varying: Sequence[Mapping[str, Any]],
    warm_at: float | None,
    *,
    between_steps: bool,
) -> Recompiled:
    last, category = times[-1], times[-1].category or ""
    about = subjects(last.reason or "")
    compiled = [compilation for compilation in times if not compilation.at_limit]
    shown = compiled or times
    late = sum(is_after(compilation, warm_at) for compilation in compiled)
    in_a_row = max(compilation.in_a_row for compilation in times)
    often = (
        values["words"]
        for values in varying
        if (values.get("name"), values.get("file"), values.get("line")) == last.function
        and (values["tensor"], if_known(str, values["dim"])) in about
        and values.get("words")
        and category in _CHANGING
    )
    callers = (compilation.caller for compilation in times if compilation.caller is not None)
    return Recompiled(
        category=category,
        count=len(compiled),
        seconds=sum(compilation.seconds or 0.0 for compilation in times),
        name=last.name,
        file=last.file,
        line=last.line,
        callers=tuple(dict.fromkeys(callers)),
        steps=tuple(compilation.step for compilation in shown if compilation.step is not None),
        between_steps=between_steps,
        reasons=tuple(dict.fromkeys(filter(None, map(reason_of, shown)))),
        advice=advice_for(last, after_warm=late > 0 or in_a_row >= REPEATED_STEPS),
        often=next(often, None),
        after_warm=late,
        in_a_row=in_a_row,
        last_batch=last.last_batch is not None,
        at_limit=len(times) - len(compiled),
    )


def places(compilations: Iterable[Priced]) -> tuple[Place, ...]:
    """Places of graph breaks: Dynamo names a resume function after the line where it resumes."""
    places = (
        Place(name=rest[0], file=compilation.file, line=rest[1])
        for compilation in compilations
        if compilation.file and (rest := resumed(compilation.name))
    )
    return tuple(dict.fromkeys(places))


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
