"""What changed since the last run like this one, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from warmwatch_monitor.export.document import Item, Section
from warmwatch_monitor.export.report.parts import Changed, ChangedFact, ChangedFunction, Report
from warmwatch_monitor.export.words.amounts import took
from warmwatch_monitor.export.words.report.compiled import called
from warmwatch_monitor.export.words.wording import counted

_NOTABLE = 0.05  # of the longer warm-up: a function that took so much more or less is worth a word
_LEAST = 0.5  # seconds
_SAME = 0.1
_NAMED = 3
_CACHES = {"inductor cache": "inductor", "triton cache": "triton"}
_SHORT = 12  # letters of a commit


def since_last_time(report: Report) -> Section | None:
    """``None`` where no run like it is remembered."""
    known = report.changed
    if known is None:
        return None
    head = ": ".join(filter(None, [_lengths(known), "; ".join(_causes(known))]))
    what = () if known.facts or list(_notable(known)) else ("Nothing that is known of it changed.",)
    remark = f"Held against {known.run} ({known.id}), the last run like it that is remembered."
    return Section(_title(known), items=(Item(head, what),), remarks=(remark,))


def _title(known: Changed) -> str:
    now, before = known.warmup_seconds, known.before_seconds
    if abs(now - before) < max(_LEAST, _SAME * before):
        return "Since last time"
    return "Slower than last time" if now > before else "Faster than last time"


def _lengths(known: Changed) -> str:
    return f"warm-up took {took(known.warmup_seconds)}, last time {took(known.before_seconds)}"


def _causes(known: Changed) -> Iterator[str]:
    """The functions that took most more or less, then all that is otherwise."""
    notable = list(_notable(known))
    for one in notable[:_NAMED]:
        yield _function(one)
    if len(notable) > _NAMED:
        yield f"and {counted(len(notable) - _NAMED, 'other function')}"
    yield from _caches(known.facts)
    for fact in known.facts:
        if fact.what not in _CACHES:
            were = "were" if fact.what.endswith("s") else "was"
            yield f"{fact.what} {_shown(fact.now)}, {were} {_shown(fact.before)}"


def _notable(known: Changed) -> Iterator[ChangedFunction]:
    least = max(_LEAST, _NOTABLE * max(known.warmup_seconds, known.before_seconds))
    ordered = sorted(known.functions, key=lambda one: -abs(one.seconds - one.before_seconds))
    return (one for one in ordered if abs(one.seconds - one.before_seconds) >= least)


def _function(one: ChangedFunction) -> str:
    """``inductor 22 min more in `forward` (graph changed: 1,204 operators, was 1,180)``."""
    named, difference = called(one.name, one.file, one.line), one.seconds - one.before_seconds
    if not one.before_times:
        return f"{took(one.seconds)} for {named}, which was not compiled then"
    if not one.times:
        return f"{took(one.before_seconds)} less, for {named} is not compiled any more"
    sign = 1 if difference > 0 else -1
    phase, spent = max(one.phases.items(), key=lambda item: sign * item[1], default=("", 0.0))
    said = f"{phase} {took(abs(spent))}" if phase and sign * spent > 0 else took(abs(difference))
    why = "; ".join(_why(one))
    return f"{said} {'more' if sign > 0 else 'less'} in {named}{f' ({why})' if why else ''}"


def _why(one: ChangedFunction) -> Iterator[str]:
    if one.times != one.before_times:
        yield f"compiled {_often(one.times)}, {_often(one.before_times)} last time"
    elif one.ops is not None and one.before_ops is not None and one.ops != one.before_ops:
        yield f"graph changed: {one.ops:,} operators, was {one.before_ops:,}"
    if one.code_changed:
        yield "its code changed"


def _often(times: int) -> str:
    return "once" if times == 1 else f"{times} times"


def _caches(facts: tuple[ChangedFact, ...]) -> Iterator[str]:
    """``caches were cold (they were warm)``; each by itself where they are not alike."""
    known = [one for one in facts if one.what in _CACHES]
    if len(known) == len(_CACHES) and len({one.now for one in known}) == 1:
        yield f"caches were {known[0].now} (they were {known[0].before})"
        return
    for one in known:
        yield f"{_CACHES[one.what]}'s cache was {one.now} (it was {one.before})"


def _shown(value: str | int) -> str:
    text = str(value)
    return text[:_SHORT] if len(text) == 40 else text  # a commit
