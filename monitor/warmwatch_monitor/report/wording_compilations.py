"""A report's compilations in words: recompiles, graph breaks, and changes since the last run.
Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from warmwatch.shared.phrases import called_from, counted, place
from warmwatch_monitor.output.amounts import cached, few, mostly, of_break, took
from warmwatch_monitor.output.document import Item, Section, table
from warmwatch_monitor.report.parts import (
    Changed,
    ChangedFact,
    ChangedFunction,
    Function,
    Recompiled,
    Report,
)
from warmwatch_monitor.report.remedies import remedy_of

_FUNCTIONS, _REASONS, _BREAKS, _CALLERS = 12, 6, 10, 3
_EXAMPLES = 2  # reasons shown besides a sentence that sums them up
_BREAK_WORDS = 200
_IN_THE_MIDDLE = "in the middle of compile activity"


def failure(report: Report) -> Section | None:
    """The error that ended a run, and the compilation if the last one failed."""
    end = report.end
    if report.state != "failed" or end is None:
        return None
    after = f"after {counted(report.steps, 'step')}"
    exception, code = end.get("exception"), end.get("exit_code")
    at = end.get("place")
    raised = f" in {place(at['name'], at['file'], at['line'])}" if at else ""
    head = f"{exception}{raised} ended it {after}" if exception else f"It ended {after}"
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


def compilations(report: Report) -> str:
    """``2 compilations, 1 forward and 1 backward``: one compiled function is often two.

    Of a function without operators, and of a call at the recompile limit, PyTorch has a record
    without a graph.
    """
    times = [one for function in report.functions for one in function.times]
    kinds = Counter(kind for one in times if not one.at_limit for kind in one.kinds)
    forward, backward = kinds["forward"], kinds["backward"]
    words = counted(report.compilations or 0, "compilation")
    graphs = forward if report.graphs is None else report.graphs
    some = f" ({graphs} with a graph)" * (graphs < forward)
    if backward and forward + backward == report.compilations:
        words += f", {forward} forward{some} and {backward} backward"
    elif forward == report.compilations:
        words += some
    # else the history has left some out, or there is nothing to explain
    refused = sum(one.at_limit for one in times)
    return words + (f"; the recompile limit refused {refused} more" * bool(refused))


def timeline(report: Report) -> Section | None:
    """Functions by cost."""
    if not report.functions:
        return None
    shown, others = report.functions[:_FUNCTIONS], report.functions[_FUNCTIONS:]
    rows = [_function(one) for one in shown]
    if others:
        total = sum(one.seconds for one in others)
        times = sum(one.compilations for one in others)
        rows.append((f"{len(others)} others", str(times), took(total), "", ""))
    return Section(
        "Compile time by function and phase",
        table=table(("function", "count>", "took>", "mostly", "cached>"), rows, sparse=True),
        chart="timeline",
    )


def _function(one: Function) -> tuple[str, ...]:
    return (
        called(one.name, one.file, one.line),
        str(one.compilations),
        took(one.seconds),
        mostly(one.phase_seconds),
        cached(one.cache_hits, one.cache_misses),
    )


def called(name: str | None, file: str | None, line: int | None) -> str:
    """A function in a table."""
    return place(name, file, line) or "(of no known function)"


def again(report: Report) -> Section | None:
    """Recompiles with reason and remedy, grouped by cause."""
    if not report.recompiled:
        return None
    return Section(
        "Recompiles",
        items=tuple(
            _recompiled(one, report.steps, remedy_of(one, report.do)) for one in report.recompiled
        ),
    )


def _recompiled(one: Recompiled, run_steps: int | None, remedy: int) -> Item:
    times = "once" if one.count == 1 else f"{one.count} times"
    steps = _when(one) if run_steps else ""
    named = called(one.name, one.file, one.line) + _from(one.callers)
    some = "all" if one.after_warm == one.count else f"{one.after_warm} of them"
    late = f", {some} after it was warm" if one.after_warm and one.count > 1 else ""
    refused = f"{one.at_limit} {'more ' * bool(one.count)}refused at the recompile limit"
    many = [times if one.count else refused, took(one.seconds)]
    refused = f", {refused}" if one.at_limit and one.count else ""
    head = f"{named}: {', '.join(many)} ({one.category}{steps}{late}{refused})"
    reasons = list(one.reasons[: _EXAMPLES if one.often else _REASONS])
    more = len(one.reasons) - len(reasons)
    why = "; ".join(reasons) + (f"; and {counted(more, 'other reason')}" if more else "")
    what_follows = "" if remedy else one.advice
    known = "" if remedy else one.often
    return Item(head, tuple(words for words in (why, known, what_follows) if words), remedy)


def _from(callers: tuple[str, ...]) -> str:
    users = [caller for caller in callers if caller]
    return called_from(few(users, _CALLERS)) if callers else ""


def _when(one: Recompiled) -> str:
    """In or between which steps it compiled.

    Both are possible for a change of the grad mode without a recorded backward: with warm caches
    PyTorch loads the backward of the training's own graph and does not compile it.
    """
    if not one.steps:
        return ""
    if one.between_steps:
        return _between(one.steps)
    if one.category == "grad_mode":
        return f", after {_steps(one.steps)}" if one.steps[0] else ""
    return f", in {_steps([step + 1 for step in one.steps])}"


def _steps(numbers: Sequence[int]) -> str:
    first, last = numbers[0], numbers[-1]
    return f"step {first}" if first == last else f"steps {first} to {last}"


def _between(steps: tuple[int, ...]) -> str:
    """``, between steps 20 and 21``: for work outside of steps."""
    first, last = steps[0], steps[-1]
    if first == last:
        return f", between steps {first} and {first + 1}" if first else ", before step 1"
    return f", between steps, after step {first} to after step {last}"


def broken(report: Report) -> Section | None:
    """Graph breaks, fallbacks, skipped CUDA graphs, failures; ``None`` if there was none."""
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
        yield Item(f"{of_break(one.reason, one.whole, _BREAK_WORDS)}{times}")
    if others := report.breaks[_BREAKS:]:
        yield Item(
            f"{counted(len(others), 'other reason')}, {sum(one.count for one in others)} times"
        )


def _fallbacks(report: Report) -> Iterator[Item]:
    if report.fallbacks:
        yield Item(
            report.conditions.get("fallback")
            or f"{counted(report.fallbacks, 'frame')} hit the recompile limit"
        )
    if skipped := report.conditions.get("cudagraph_skipped"):
        yield Item(skipped)
    if report.failures:
        yield Item(f"{counted(report.failures, 'compilation')} failed")


_NOTABLE = 0.05  # of the longer warm-up: smaller differences of a function are not reported
_LEAST = 0.5  # seconds
_SAME = 0.1
_NAMED = 3
_CACHES = {"inductor cache": "inductor", "triton cache": "triton"}
_SHORT = 12  # letters of a commit


def since_last_time(report: Report) -> Section | None:
    """``None`` if the history has no comparable run."""
    known = report.changed
    if known is None:
        return None
    now, before = took(known.warmup_seconds), took(known.before_seconds)
    lengths = f"warm-up took {now}, last time {before}"
    head = ": ".join(filter(None, [lengths, "; ".join(_causes(known))]))
    what = () if known.facts or list(_notable(known)) else ("No recorded property changed.",)
    remark = (
        f"Compared with {known.run} ({known.id}), the last comparable run in the history. "
        "Arguments are not recorded: other ones may be the difference."
    )
    return Section(_title(known), items=(Item(head, what),), remarks=(remark,))


def _title(known: Changed) -> str:
    now, before = known.warmup_seconds, known.before_seconds
    if abs(now - before) < max(_LEAST, _SAME * before):
        return "Since last time"
    return "Slower than last time" if now > before else "Faster than last time"


def _causes(known: Changed) -> Iterator[str]:
    """The functions with the largest differences, then all other differences."""
    notable = list(_notable(known))
    for one in notable[:_NAMED]:
        yield _changed_function(one)
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


def _changed_function(one: ChangedFunction) -> str:
    """``inductor 22 min more in `forward` (graph changed: 1,204 operators, was 1,180)``."""
    named, difference = called(one.name, one.file, one.line), one.seconds - one.before_seconds
    if not one.before_times:
        return f"{took(one.seconds)} for {named}, which was not compiled last time"
    if not one.times:
        return f"{took(one.before_seconds)} less: {named} is no longer compiled"
    sign = 1 if difference > 0 else -1
    phase, spent = max(one.phases.items(), key=lambda item: sign * item[1], default=("", 0.0))
    amount = f"{phase} {took(abs(spent))}" if phase and sign * spent > 0 else took(abs(difference))
    why = "; ".join(_why(one))
    return f"{amount} {'more' if sign > 0 else 'less'} in {named}{f' ({why})' if why else ''}"


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
    """``caches were empty at the start (before: not empty)``; each by itself if they differ.

    A cache that was not empty may have no entry for this run, so it is not called warm.
    """
    known = [one for one in facts if one.what in _CACHES]
    if len(known) == len(_CACHES) and len({one.now for one in known}) == 1:
        yield f"caches were {_at_start(known[0])}"
        return
    for one in known:
        yield f"{_CACHES[one.what]}'s cache was {_at_start(one)}"


def _at_start(one: ChangedFact) -> str:
    now, before = ("empty", "not empty") if one.now == "cold" else ("not empty", "empty")
    return f"{now} at the start (before: {before})"


def _shown(value: str | int) -> str:
    text = str(value)
    return text[:_SHORT] if len(text) == 40 else text  # a commit
