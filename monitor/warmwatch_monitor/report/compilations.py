"""Compilations of a rank, each with its cost, combined by function. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from msgspec.structs import replace

from warmwatch.shared.advice import advice_for, cause
from warmwatch.shared.phrases import resumed
from warmwatch.shared.reasons import plain
from warmwatch.shared.verdict import REPEATED_STEPS
from warmwatch_monitor.model import OF_GRAPHS, families
from warmwatch_monitor.model.run_summary import Compiled
from warmwatch_monitor.output.amounts import own_words
from warmwatch_monitor.published import copied
from warmwatch_monitor.report.parts import Function, Place, Priced, Recompiled

_REASON = 160
_Function = tuple[str | None, str | None, int | None]


def first_step_began(steps: Mapping[str, Any]) -> float | None:
    """When step 1 began, from ``step_seconds`` of a rank; ``None`` if its length is not known."""
    at, length = steps.get("first_at"), steps.get("first")
    return None if at is None or length is None else float(at - length)


def is_after(one: Priced, moment: float | None) -> bool:
    """Whether it ended after ``moment``, the end of an activity; its journal line comes later."""
    return moment is not None and one.began > moment


def priced(compiled: Iterable[Compiled]) -> tuple[Priced, ...]:
    """Each compilation with everything that belongs to it."""
    records = tuple(compiled)
    return tuple(
        reduce(_joined, (records[at] for at in family[1:]), _begun(records[family[0]]))
        for family in families(records)
    )


def _begun(one: Compiled) -> Priced:
    return copied(
        one,
        Priced,
        began=one.ended - (one.seconds or 0.0),
        kinds=(one.kind,),
        plain=plain(one.reason, one.category, one.of_class),
        compilations=int(one.kind in OF_GRAPHS and not one.at_limit),
        cache_hits=int(one.cache == "hit"),
        cache_misses=int(one.cache == "miss"),
        phase_seconds=dict(one.phase_seconds),
    )


def _joined(whole: Priced, more: Compiled) -> Priced:
    return replace(
        whole,
        ended=max(whole.ended, more.ended),
        seconds=_sum(whole.seconds, more.seconds),
        kinds=(*whole.kinds, more.kind),
        name=whole.name or more.name,
        file=whole.file or more.file,
        line=whole.line if whole.line is not None else more.line,
        reason=whole.reason or more.reason,
        plain=whole.plain or plain(more.reason, more.category, more.of_class),
        category=whole.category or more.category,
        cache=whole.cache or more.cache,
        compilations=whole.compilations + (more.kind in OF_GRAPHS),
        cache_hits=whole.cache_hits + (more.cache == "hit"),
        cache_misses=whole.cache_misses + (more.cache == "miss"),
        failure=whole.failure or more.failure,
        failure_reason=whole.failure_reason or more.failure_reason,
        failure_hint=whole.failure_hint or more.failure_hint,
        phase_seconds=added((whole.phase_seconds, more.phase_seconds)),
        ops=_sum(whole.ops, more.ops),
        kernels=_sum(whole.kernels, more.kernels),
        slowest_kernels=(*whole.slowest_kernels, *more.slowest_kernels),
    )


def _sum(one: Any, other: Any) -> Any:
    """The sum of two values that may be unknown."""
    return other if one is None else one if other is None else one + other


def added(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Seconds by phase, longest first."""
    found: dict[str, float] = {}
    for part in parts:
        for name, seconds in part.items():
            found[name] = found.get(name, 0.0) + seconds
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def functions(of: Iterable[Priced]) -> tuple[Function, ...]:
    """The cost of each function, most expensive first."""
    found: dict[_Function, list[Priced]] = {}
    for one in of:
        found.setdefault(_whose(one), []).append(one)
    made = (
        Function(
            name=name,
            file=file,
            line=line,
            seconds=sum(one.seconds or 0.0 for one in times),
            compilations=sum(one.compilations for one in times),
            cache_hits=sum(one.cache_hits for one in times),
            cache_misses=sum(one.cache_misses for one in times),
            phase_seconds=added(one.phase_seconds for one in times),
            times=tuple(times),
        )
        for (name, file, line), times in found.items()
    )
    return tuple(sorted(made, key=lambda one: -one.seconds))


def recompiled(
    of: Iterable[Priced],
    varying: Sequence[Mapping[str, Any]],
    warm_at: float | None,
    first_began: float | None = None,
) -> tuple[Recompiled, ...]:
    """Recompiles by function, category and cause, most expensive first.

    ``varying``: dimensions that changed, as in ``/status``. ``warm_at``: when the first
    warm-up was over. ``first_began``: when step 1 began.
    """
    every = tuple(of)
    trained = frozenset(one.id for one in every if one.id and "backward" in one.kinds)
    found: dict[tuple[_Function, str, bool, str], list[Priced]] = {}
    for one in every:
        if one.category:
            without = "backward" not in one.kinds and _is_without_grad(one.reason or "", trained)
            before = first_began is not None and one.ended <= first_began
            between_steps = one.evaluating or without or before
            why = cause(one.category, one.kinds[0], one.reason)
            found.setdefault((_whose(one), one.category, between_steps, why), []).append(one)
    made = (_group(*key[:3], times, varying, warm_at) for key, times in found.items())
    return tuple(sorted(made, key=lambda one: -one.seconds))


def _is_without_grad(reason: str, trained: frozenset[str]) -> bool:
    """Whether a cache entry with a backward did not match because this call has no gradients.

    A missing backward record proves nothing: with dynamic shapes PyTorch compiles the backward
    together with the forward.
    """
    entries = (line.strip().lstrip("!").partition(":") for line in reason.splitlines())
    return any(id in trained and "grad_mode" in why for id, _, why in entries)


def reason_of(one: Priced) -> str:
    """In plain words if available, else in PyTorch's; empty without one."""
    return one.plain or own_words(one.reason or "", _REASON)


def _whose(one: Priced) -> _Function:
    return one.name, one.file, one.line


def _group(
    function: _Function,
    category: str,
    between_steps: bool,
    times: Sequence[Priced],
    varying: Sequence[Mapping[str, Any]],
    warm_at: float | None,
) -> Recompiled:
    name, file, line = function
    late = sum(is_after(one, warm_at) for one in times if not one.at_limit)
    in_a_row = max(one.in_a_row for one in times)
    often = [
        one["words"]
        for one in varying
        if (one.get("name"), one.get("file"), one.get("line")) == (name, file, line)
        and one.get("words")
        and category in ("shape", "python_value", "module_state")
    ]
    reasons = map(reason_of, times)
    last = times[-1]
    return Recompiled(
        category=category,
        count=sum(not one.at_limit for one in times),
        seconds=sum(one.seconds or 0.0 for one in times),
        name=name,
        file=file,
        line=line,
        callers=tuple(dict.fromkeys(one.caller for one in times if one.caller is not None)),
        steps=tuple(one.step for one in times if one.step is not None),
        between_steps=between_steps,
        reasons=tuple(dict.fromkeys(reason for reason in reasons if reason)),
        advice=advice_for(last, after_warm=late > 0 or in_a_row >= REPEATED_STEPS),
        often=often[0] if often else None,
        after_warm=late,
        in_a_row=in_a_row,
        last_batch=last.last_batch is not None,
        at_limit=sum(one.at_limit for one in times),
    )


def places(of: Iterable[Priced]) -> tuple[Place, ...]:
    """Places of graph breaks: Dynamo names a resume function after the line where it resumes."""
    found: dict[tuple[str, str | None, int], Place] = {}
    for one in of:
        if rest := resumed(one.name):
            name, line = rest
            found[name, one.file, line] = Place(name=name, file=one.file, line=line)
    return tuple(found.values())
