"""What was compiled, compiled again, broken and left out, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from warmwatch_monitor.export.document import Item, Section
from warmwatch_monitor.export.report.parts import Function, Recompiled, Report
from warmwatch_monitor.export.words.amounts import took
from warmwatch_monitor.export.words.tables import table
from warmwatch_monitor.export.words.wording import counted, own_words, place

_FUNCTIONS, _REASONS, _BREAKS = 12, 6, 10
_BREAK_WORDS = 200
_IN_THE_MIDDLE = "in the middle of compile activity"


def failure(report: Report) -> Section | None:
    """What ended a run that failed; and the compilation, where one failed last."""
    end = report.end
    if report.state != "failed" or end is None:
        return None
    after = f"after {counted(report.steps, 'step')}"
    exception, code = end.get("exception"), end.get("exit_code")
    head = f"{exception} ended it {after}" if exception else f"It ended {after}"
    head += f", exit code {code}" if code is not None else ""
    middle = [f"{line[0].upper()}{line[1:]}." for line in report.evidence if _IN_THE_MIDDLE in line]
    return Section("The failure", items=(Item(head, (*_failed(report), *middle)),))


def _failed(report: Report) -> Iterator[str]:
    """``Compiling `forward` (model.py:31) failed before step 13: BackendCompilerFailed (0/1)``."""
    times = [one for function in report.functions for one in function.times if one.failure]
    if not times:
        return
    last = max(times, key=lambda one: one.ended)
    before = "" if last.step is None else f" before step {last.step + 1}"
    known = f" (compilation {last.id}, {last.kinds[0]})" if last.id else ""
    name = (last.failure or "").rpartition(".")[2]
    yield f"Compiling {called(last.name, last.file, last.line)} failed{before}: {name}{known}."


def timeline(report: Report) -> Section | None:
    """Functions by what they cost."""
    if not report.functions:
        return None
    shown, others = report.functions[:_FUNCTIONS], report.functions[_FUNCTIONS:]
    rows = [_function(one) for one in shown]
    if others:
        total = sum(one.seconds for one in others)
        times = sum(one.compilations for one in others)
        rows.append((f"{len(others)} others", str(times), took(total), "", ""))
    return Section(
        "Timeline by function and phase",
        table=table(("function", "count>", "took>", "mostly", "cached>"), rows, sparse=True),
        chart="timeline",
    )


def _function(one: Function) -> tuple[str, ...]:
    most = next(iter(one.phase_seconds), None)
    whole = sum(one.phase_seconds.values())
    mostly = (
        "" if most is None or not whole else f"{most} {100 * one.phase_seconds[most] / whole:.0f} %"
    )
    asked = one.cache_hits + one.cache_misses
    cached = f"{one.cache_hits}/{asked}" if asked else ""
    return (
        called(one.name, one.file, one.line),
        str(one.compilations),
        took(one.seconds),
        mostly,
        cached,
    )


def called(name: str | None, file: str | None, line: int | None) -> str:
    """A function in a table."""
    return place(name, file, line) or "(of no known function)"


def again(report: Report) -> Section | None:
    """Every recompile, with reason and remedy, those of one cause together."""
    if not report.recompiled:
        return None
    return Section("Compiled again", items=tuple(_recompiled(one) for one in report.recompiled))


def _recompiled(one: Recompiled) -> Item:
    times = "once" if one.count == 1 else f"{one.count} times"
    steps = _between(one.steps) if one.between_steps else _steps(one.steps)
    named = called(one.name, one.file, one.line)
    late = (
        f", {one.after_warm} of them after it was warm" if one.after_warm and one.count > 1 else ""
    )
    head = f"{named}: {times}, {took(one.seconds)} ({one.category}{steps}{late})"
    reasons = list(one.reasons[:_REASONS])
    more = len(one.reasons) - len(reasons)
    said = "; ".join(reasons) + (f"; and {counted(more, 'other reason')}" if more else "")
    return Item(head, tuple(words for words in (said, one.often or "") if words))


def _between(steps: tuple[int, ...]) -> str:
    """``, between steps 20 and 21``: of what belongs to no step."""
    if not steps:
        return ""
    first, last = steps[0], steps[-1]
    if first == last:
        return f", between steps {first} and {first + 1}" if first else ", before step 1"
    return f", between steps, after step {first} to after step {last}"


def _steps(steps: tuple[int, ...]) -> str:
    if not steps:
        return ""
    first, last = steps[0] + 1, steps[-1] + 1
    return f", in step {first}" if first == last else f", in steps {first} to {last}"


def broken(report: Report) -> Section | None:
    """Graph breaks, fallbacks, CUDA graphs left out, failures; ``None`` where there was none."""
    items = [*_breaks(report), *_fallbacks(report)]
    return Section("Graph breaks and what fell back", items=tuple(items)) if items else None


def _breaks(report: Report) -> Iterator[Item]:
    if not report.graph_breaks:
        return
    where = ", ".join(place(one.name, one.file, one.line) for one in report.places)
    places = (f"Dynamo went on at {where}.",) if where else ()
    several = "" if len(report.breaks) < 2 else f", {len(report.breaks)} reasons"
    yield Item(f"{counted(report.graph_breaks, 'graph break')}{several}", places)
    for one in report.breaks[:_BREAKS]:
        times = "" if one.count == 1 else f", {one.count} times"
        yield Item(
            f"{own_words(one.reason, _BREAK_WORDS)}{times}", (one.advice,) if one.advice else ()
        )


def _fallbacks(report: Report) -> Iterator[Item]:
    if report.fallbacks:
        yield Item(
            report.conditions.get("fallback")
            or f"{counted(report.fallbacks, 'frame')} hit the recompile limit"
        )
    if report.cudagraph_skips:
        yield Item(
            report.conditions.get("cudagraph_skipped")
            or f"CUDA graphs were left out {report.cudagraph_skips} times"
        )
    if report.failures:
        yield Item(f"{counted(report.failures, 'compilation')} failed")
