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
from warmwatch_monitor.commands.report.parts import Function, Place, Priced, Recompiled
from warmwatch_monitor.figures.units import copied
from warmwatch_monitor.model import OF_GRAPHS, families
from warmwatch_monitor.model.run_summary import Compiled
from warmwatch_monitor.output.amounts import own_words

_REASON = 160
_Function = tuple[str | None, str | None, int | None]


def first_step_began(steps: Mapping[str, Any]) -> float | None:
    """When step 1 began, from ``step_seconds`` of a rank; ``None`` if its length is not known."""
    at, length = steps.get("first_at"), steps.get("first")
    return None if at is None or length is None else float(at - length)


def is_after(compilation: Priced, moment: float | None) -> bool:
    """Whether it ended after ``moment``, the end of an activity; its journal line comes later."""
    return moment is not None and compilation.began > moment


def priced(compiled: Iterable[Compiled]) -> tuple[Priced, ...]:
    """Each compilation with everything that belongs to it."""
    records = tuple(compiled)
    return tuple(
        reduce(_joined, (records[at] for at in family[1:]), _begun(records[family[0]]))
        for family in families(records)
    )


def _begun(compilation: Compiled) -> Priced:
    return copied(
        compilation,
        Priced,
        began=compilation.ended - (compilation.seconds or 0.0),
        kinds=(compilation.kind,),
        plain=plain(compilation.reason, compilation.category, compilation.of_class),
        compilations=int(compilation.kind in OF_GRAPHS and not compilation.at_limit),
        cache_hits=int(compilation.cache == "hit"),
        cache_misses=int(compilation.cache == "miss"),
        phase_seconds=dict(compilation.phase_seconds),
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


def _sum(value: Any, other: Any) -> Any:
    """The sum of two values that may be unknown."""
    return other if value is None else value if other is None else value + other


def added(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Seconds by phase, longest first."""
    amounts: dict[str, float] = {}
    for part in parts:
        for name, seconds in part.items():
            amounts[name] = amounts.get(name, 0.0) + seconds
    return dict(sorted(amounts.items(), key=lambda item: -item[1]))


def functions(compilations: Iterable[Priced]) -> tuple[Function, ...]:
    """The cost of each function, most expensive first."""
    groups: dict[_Function, list[Priced]] = {}
    for compilation in compilations:
        groups.setdefault(_whose(compilation), []).append(compilation)
    made = (
        Function(
            name=name,
            file=file,
            line=line,
            seconds=sum(priced.seconds or 0.0 for priced in times),
            compilations=sum(priced.compilations for priced in times),
            cache_hits=sum(priced.cache_hits for priced in times),
            cache_misses=sum(priced.cache_misses for priced in times),
            phase_seconds=added(priced.phase_seconds for priced in times),
            times=tuple(times),
        )
        for (name, file, line), times in groups.items()
    )
    return tuple(sorted(made, key=lambda function: -function.seconds))


def recompiled(
    compilations: Iterable[Priced],
    varying: Sequence[Mapping[str, Any]],
    warm_at: float | None,
    first_began: float | None = None,
) -> tuple[Recompiled, ...]:
    """Recompiles by function, category and cause, most expensive first.

    ``varying``: dimensions that changed, as in ``/status``. ``warm_at``: when the first
    warm-up was over. ``first_began``: when step 1 began.
    """
    every = tuple(compilations)
    trained = frozenset(priced.id for priced in every if priced.id and "backward" in priced.kinds)
    groups: dict[tuple[_Function, str, bool, str], list[Priced]] = {}
    for compilation in every:
        if compilation.category:
            without = "backward" not in compilation.kinds and _is_without_grad(
                compilation.reason or "", trained
            )
            before = first_began is not None and compilation.ended <= first_began
            between_steps = compilation.evaluating or without or before
            why = cause(compilation.category, compilation.kinds[0], compilation.reason)
            groups.setdefault(
                (_whose(compilation), compilation.category, between_steps, why), []
            ).append(compilation)
    made = (_group(*key[:3], times, varying, warm_at) for key, times in groups.items())
    return tuple(sorted(made, key=lambda recompiled: -recompiled.seconds))


def _is_without_grad(reason: str, trained: frozenset[str]) -> bool:
    """Whether a cache entry with a backward did not match because this call has no gradients.

    A missing backward record proves nothing: with dynamic shapes PyTorch compiles the backward
    together with the forward.
    """
    entries = (line.strip().lstrip("!").partition(":") for line in reason.splitlines())
    return any(id in trained and "grad_mode" in why for id, _, why in entries)


def reason_of(compilation: Priced) -> str:
    """In plain words if available, else in PyTorch's; empty without one."""
    return compilation.plain or own_words(compilation.reason or "", _REASON)


def _whose(compilation: Priced) -> _Function:
    return compilation.name, compilation.file, compilation.line


def _group(
    function: _Function,
    category: str,
    between_steps: bool,
    times: Sequence[Priced],
    varying: Sequence[Mapping[str, Any]],
    warm_at: float | None,
) -> Recompiled:
    name, file, line = function
    late = sum(is_after(compilation, warm_at) for compilation in times if not compilation.at_limit)
    in_a_row = max(compilation.in_a_row for compilation in times)
    often = [
        values["words"]
        for values in varying
        if (values.get("name"), values.get("file"), values.get("line")) == (name, file, line)
        and values.get("words")
        and category in ("shape", "python_value", "module_state")
    ]
    reasons = map(reason_of, times)
    last = times[-1]
    return Recompiled(
        category=category,
        count=sum(not compilation.at_limit for compilation in times),
        seconds=sum(compilation.seconds or 0.0 for compilation in times),
        name=name,
        file=file,
        line=line,
        callers=tuple(
            dict.fromkeys(
                compilation.caller for compilation in times if compilation.caller is not None
            )
        ),
        steps=tuple(compilation.step for compilation in times if compilation.step is not None),
        between_steps=between_steps,
        reasons=tuple(dict.fromkeys(reason for reason in reasons if reason)),
        advice=advice_for(last, after_warm=late > 0 or in_a_row >= REPEATED_STEPS),
        often=often[0] if often else None,
        after_warm=late,
        in_a_row=in_a_row,
        last_batch=last.last_batch is not None,
        at_limit=sum(compilation.at_limit for compilation in times),
    )


def places(compilations: Iterable[Priced]) -> tuple[Place, ...]:
    """Places of graph breaks: Dynamo names a resume function after the line where it resumes."""
    places: dict[tuple[str, str | None, int], Place] = {}
    for compilation in compilations:
        if rest := resumed(compilation.name):
            name, line = rest
            places[name, compilation.file, line] = Place(
                name=name, file=compilation.file, line=line
            )
    return tuple(places.values())
