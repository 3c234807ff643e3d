"""A report's compilations in words: recompiles, graph breaks, and changes since the last run.
Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from warmwatch.shared.phrases import called_from, counted, place, took
from warmwatch_monitor.commands.report.parts import (
    Changed,
    ChangedFact,
    ChangedFunction,
    Function,
    Recompiled,
    Report,
)
from warmwatch_monitor.commands.report.remedies import of_break, remedy_of
from warmwatch_monitor.output.amounts import cached, few, moment, mostly
from warmwatch_monitor.output.document import Item, Section, table
from warmwatch_monitor.status.words.evidence import in_the_middle

_FUNCTIONS, _REASONS, _BREAKS, _CALLERS = 12, 6, 10, 3
_EXAMPLES = 2  # reasons shown besides a sentence that sums them up
_BREAK_WORDS = 200


def failure(report: Report) -> Section | None:
    """The error that ended a run, and the compilation if the last one failed."""
    end = report.end
    if report.state != "failed" or end is None:
        return None
    after = f"after {counted(report.steps, 'step')}"
    raised = f" in {place(end.place.name, end.place.file, end.place.line)}" if end.place else ""
    head = f"{end.exception}{raised} ended it {after}" if end.exception else f"It ended {after}"
    head += f", exit code {end.exit_code}" if end.exit_code is not None else ""
    middle = (f"It {in_the_middle(end.phase)}.",) if end.phase else ()
    return Section("The failure", items=(Item(head, (*_failed(report), *middle)),))


def _failed(report: Report) -> Iterator[str]:
    """``Compiling `forward` (model.py:31) failed before step 13: BackendCompilerFailed (0/1)``."""
    times = [
        compilation
        for function in report.functions
        for compilation in function.times
        if compilation.failure
    ]
    if not times:
        return
    last = max(times, key=lambda priced: priced.ended)
    before = "" if last.step is None else f" before step {last.step + 1}"
    text = f" (compilation {last.id}, {last.kinds[0]})" if last.id else ""
    name = (last.failure or "").rpartition(".")[2]
    yield f"Compiling {called(last.name, last.file, last.line)} failed{before}: {name}{text}."


def compilations(report: Report) -> str:
    """``2 compilations, 1 forward and 1 backward``: one compiled function is often two.

    Of a function without operators, and of a call at the recompile limit, PyTorch has a record
    without a graph.
    """
    times = [compilation for function in report.functions for compilation in function.times]
    kinds = Counter(
        kind for compilation in times if not compilation.at_limit for kind in compilation.kinds
    )
    forward, backward = kinds["forward"], kinds["backward"]
    text = counted(report.compilations or 0, "compilation")
    graphs = forward if report.graphs is None else report.graphs
    some = f" ({graphs} with a graph)" * (graphs < forward)
    if backward and forward + backward == report.compilations:
        text += f", {forward} forward{some} and {backward} backward"
    elif forward == report.compilations:
        text += some
    # else the history has left some out, or there is nothing to explain
    refused = sum(compilation.at_limit for compilation in times)
    return text + (f"; the recompile limit refused {refused} more" * bool(refused))


def timeline(report: Report) -> Section | None:
    """Functions by cost."""
    if not report.functions:
        return None
    shown, others = report.functions[:_FUNCTIONS], report.functions[_FUNCTIONS:]
    rows = [_function(function) for function in shown]
    if others:
        total = sum(function.seconds for function in others)
        times = sum(function.compilations for function in others)
        rows.append((counted(len(others), "other"), str(times), took(total), "", ""))
    return Section(
        "Compile time by function and phase",
        table=table(("function", "count>", "took>", "mostly", "cached>"), rows, sparse=True),
        chart="timeline",
    )


def _function(function: Function) -> tuple[str, ...]:
    return (
        called(function.name, function.file, function.line),
        str(function.compilations),
        took(function.seconds),
        mostly(function.phase_seconds),
        cached(function.cache_hits, function.cache_misses),
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
            _recompiled(recompiled, report.steps, remedy_of(recompiled, report.do))
            for recompiled in report.recompiled
        ),
    )


def _recompiled(recompiled: Recompiled, run_steps: int | None, remedy: int) -> Item:
    times = "once" if recompiled.count == 1 else f"{recompiled.count} times"
    steps = _when(recompiled) if run_steps else ""
    named = called(recompiled.name, recompiled.file, recompiled.line) + _from(recompiled.callers)
    some = (
        "all" if recompiled.after_warm == recompiled.count else f"{recompiled.after_warm} of them"
    )
    late = f", {some} after it was warm" if recompiled.after_warm and recompiled.count > 1 else ""
    refused = (
        f"{recompiled.at_limit} {'more ' * bool(recompiled.count)}refused at the recompile limit"
    )
    many = [times if recompiled.count else refused, took(recompiled.seconds)]
    refused = f", {refused}" if recompiled.at_limit and recompiled.count else ""
    head = f"{named}: {', '.join(many)} ({recompiled.category}{steps}{late}{refused})"
    reasons = list(recompiled.reasons[: _EXAMPLES if recompiled.often else _REASONS])
    more = len(recompiled.reasons) - len(reasons)
    why = "; ".join(reasons) + (f"; and {counted(more, 'other reason')}" if more else "")
    what_follows = "" if remedy else recompiled.advice
    name = "" if remedy else recompiled.often
    return Item(head, tuple(text for text in (why, name, what_follows) if text), remedy)


def _from(callers: tuple[str, ...]) -> str:
    users = [caller for caller in callers if caller]
    return called_from(few(users, _CALLERS)) if callers else ""


def _when(recompiled: Recompiled) -> str:
    """In or between which steps it compiled.

    Both are possible for a change of the grad mode without a recorded backward: with warm caches
    PyTorch loads the backward of the training's own graph and does not compile it.
    """
    if not recompiled.steps:
        return ""
    if recompiled.between_steps:
        return _between(recompiled.steps)
    if recompiled.category == "grad_mode":
        return f", after {_steps(recompiled.steps)}" if recompiled.steps[0] else ""
    return f", in {_steps([step + 1 for step in recompiled.steps])}"


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
    where = ", ".join(place(value.name, value.file, value.line) for value in report.places)
    places = (f"Dynamo went on at {where}.",) if where else ()
    several = "" if len(report.breaks) < 2 else f", {len(report.breaks)} reasons"
    yield Item(f"{counted(report.graph_breaks, 'graph break')}{several}", places)
    for item in report.breaks[:_BREAKS]:
        times = "" if item.count == 1 else f", {item.count} times"
        yield Item(f"{of_break(item, _BREAK_WORDS)}{times}")
    if others := report.breaks[_BREAKS:]:
        often = _often(sum(value.count for value in others))
        yield Item(f"{counted(len(others), 'other reason')}, {often}")


def _fallbacks(report: Report) -> Iterator[Item]:
    if report.fallbacks:
        yield Item(
            report.conditions.get("fallback")
            or f"calls of {counted(report.fallbacks, 'function')} run eagerly"
        )
    if skipped := report.conditions.get("cudagraph_skipped"):
        yield Item(skipped)
    if report.failures:
        yield Item(f"{counted(report.failures, 'compilation')} failed")


_NOTABLE = 0.05  # of the longer warm-up: smaller differences of a function are not reported
_LEAST = 0.5  # seconds
_SAME = 0.1
_NAMED = 3
_SEVERAL = frozenset({"compile threads"})
_CACHES = {"inductor cache": "inductor", "triton cache": "triton"}
_SHORT = 12  # letters of a commit


def since_last_time(report: Report) -> Section | None:
    """``None`` if the history has no comparable run."""
    changed = report.changed
    if changed is None:
        return None
    now, before = took(changed.warmup_seconds), took(changed.before_seconds)
    lengths = f"warm-up took {now}, last time {before}"
    head = ": ".join(filter(None, [lengths, "; ".join(_causes(changed))]))
    what = () if changed.facts or list(_notable(changed)) else ("No recorded property changed.",)
    remark = (
        f"Compared with {changed.run} of {moment(changed.began)}, the last comparable run. "
        "Arguments are not recorded: other ones may be the difference."
    )
    return Section(_title(changed), items=(Item(head, what),), remarks=(remark,))


def _title(changed: Changed) -> str:
    now, before = changed.warmup_seconds, changed.before_seconds
    if abs(now - before) < max(_LEAST, _SAME * before):
        return "Since last time"
    return "Slower than last time" if now > before else "Faster than last time"


def _causes(changed: Changed) -> Iterator[str]:
    """The functions with the largest differences, then all other differences."""
    notable = list(_notable(changed))
    for function in notable[:_NAMED]:
        yield _changed_function(function)
    if len(notable) > _NAMED:
        yield f"and {counted(len(notable) - _NAMED, 'other function')}"
    yield from _caches(changed.facts)
    for fact in changed.facts:
        if fact.what not in _CACHES:
            were = "were" if fact.what in _SEVERAL else "was"
            yield f"{fact.what} {_shown(fact.now)}, {were} {_shown(fact.before)}"


def _notable(changed: Changed) -> Iterator[ChangedFunction]:
    least = max(_LEAST, _NOTABLE * max(changed.warmup_seconds, changed.before_seconds))
    ordered = sorted(
        changed.functions, key=lambda function: -abs(function.seconds - function.before_seconds)
    )
    return (
        function for function in ordered if abs(function.seconds - function.before_seconds) >= least
    )


def _changed_function(function: ChangedFunction) -> str:
    """``inductor 22 min more in `forward` (graph changed: 1,204 operators, was 1,180)``."""
    named, difference = (
        called(function.name, function.file, function.line),
        function.seconds - function.before_seconds,
    )
    if not function.before_times:
        return f"{took(function.seconds)} for {named}, which was not compiled last time"
    if not function.times:
        return f"{took(function.before_seconds)} less: {named} is no longer compiled"
    sign = 1 if difference > 0 else -1
    phase, spent = max(function.phases.items(), key=lambda item: sign * item[1], default=("", 0.0))
    amount = f"{phase} {took(abs(spent))}" if phase and sign * spent > 0 else took(abs(difference))
    why = "; ".join(_why(function))
    return f"{amount} {'more' if sign > 0 else 'less'} in {named}{f' ({why})' if why else ''}"


def _why(function: ChangedFunction) -> Iterator[str]:
    if function.times != function.before_times:
        yield f"compiled {_often(function.times)}, {_often(function.before_times)} last time"
    elif (
        function.ops is not None
        and function.before_ops is not None
        and function.ops != function.before_ops
    ):
        yield f"graph changed: {function.ops:,} operators, was {function.before_ops:,}"
    if function.code_changed:
        yield "its code changed"


def _often(times: int) -> str:
    return "once" if times == 1 else f"{times} times"


def _caches(facts: tuple[ChangedFact, ...]) -> Iterator[str]:
    """``caches were empty at the start (before: not empty)``; each by itself if they differ.

    A cache that was not empty may have no entry for this run, so it is not called warm.
    """
    changed_facts = [changed_fact for changed_fact in facts if changed_fact.what in _CACHES]
    if (
        len(changed_facts) == len(_CACHES)
        and len({changed_fact.now for changed_fact in changed_facts}) == 1
    ):
        yield f"caches were {_at_start(changed_facts[0])}"
        return
    for fact in changed_facts:
        yield f"{_CACHES[fact.what]}'s cache was {_at_start(fact)}"


def _at_start(fact: ChangedFact) -> str:
    now, before = ("empty", "not empty") if fact.now == "cold" else ("not empty", "empty")
    return f"{now} at the start (before: {before})"


def _shown(value: str | int) -> str:
    text = str(value)
    return text[:_SHORT] if len(text) == 40 else text  # a commit
