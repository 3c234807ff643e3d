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
    Priced,
    Recompiled,
    Report,
)
from warmwatch_monitor.commands.report.remedies import of_break, remedy_of
from warmwatch_monitor.figures.compile import Located
from warmwatch_monitor.output.amounts import cached, failed_at, few, moment, mostly
from warmwatch_monitor.output.document import Item, Section, table
from warmwatch_monitor.status.words.evidence import in_the_middle

_FUNCTIONS, _REASONS, _BREAKS, _CALLERS = 12, 6, 10, 3
_EXAMPLES = 2  # reasons shown besides a sentence that sums them up


def failure(report: Report) -> Section | None:
    """What ended the rank that failed first, and its last compilation if that failed."""
    if report.failure is None:
        return None
    end, last = report.failure.end, report.failure.compilation
    rank = next(line for line in report.ranks if line.rank == report.failure.rank)
    who = f"rank {rank.rank}" if len(report.ranks) > 1 else "it"
    after = f" after {counted(rank.steps, 'step')}" if rank.steps else " before its first step"
    if not rank.steps and rank.warmup_seconds is not None:
        after = ""  # a server never marks one
    if end.exception:  # no exit code: a launcher may have killed the process before it exited
        raised = f" in {place(end.place.name, end.place.file, end.place.line)}" if end.place else ""
        head = f"{end.exception}{raised} ended {who}{after}"
    elif end.signal:
        head = f"{end.signal}{' (out of memory)' * bool(end.out_of_memory)} ended {who}{after}"
    else:
        head = f"{who.capitalize()} ended{after}"
        head += f", exit code {end.exit_code}" if end.exit_code is not None else ""
    details = [_failed(last)] if last else []
    details += [f"It {in_the_middle(end.phase)}."] if end.phase else []
    return Section("The failure", items=(Item(head, tuple(details)),))


def _failed(compilation: Priced) -> str:
    """``Compiling `forward` (model.py:31) failed before step 13: BackendCompilerFailed (0/1)``."""
    before = "" if compilation.step is None else f" before step {compilation.step + 1}"
    name = (compilation.failure or "").rpartition(".")[2]
    which = f" (compilation {compilation.id}, {compilation.kinds[0]})" if compilation.id else ""
    at = failed_at(compilation)
    where = f", at {at}" if at else ""
    return f"Compiling {called(compilation)} failed{before}: {name}{where}{which}."


def _compiled(report: Report) -> list[Priced]:
    return [compilation for function in report.functions for compilation in function.times]


def compilations(report: Report) -> str:
    """``2 compilations, 1 forward and 1 backward``: one compiled function is often two.

    Of a function without operators, and of a call at the recompile limit, PyTorch has a record
    without a graph.
    """
    times = _compiled(report)
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
    rows = [
        (
            called(function),
            str(function.compilations),
            took(function.seconds),
            mostly(function.phase_seconds),
            cached(function.cache_hits, function.cache_misses),
        )
        for function in report.functions[:_FUNCTIONS]
    ]
    if others := report.functions[_FUNCTIONS:]:
        total = sum(function.seconds for function in others)
        times = sum(function.compilations for function in others)
        rows.append((counted(len(others), "other"), str(times), took(total), "", ""))
    return Section(
        "Compile time by function and phase",
        table=table(("function", "count>", "took>", "mostly", "cached>"), rows, sparse=True),
        chart="timeline",
    )


def called(target: Located) -> str:
    """A function in a table."""
    return place(*target.function) or "(of no known function)"


def recompiles(report: Report) -> Section | None:
    """Recompiles with reason and remedy, grouped by cause; an advice that several have, once."""
    items, given = [], set[str | None]()
    for each in report.recompiled:
        items.append(_recompiled(each, report.steps, remedy_of(each, report.do), given))
        given.add(each.advice)
    return Section("Recompiles", items=tuple(items)) if items else None


def _recompiled(
    recompiled: Recompiled, run_steps: int, remedy: int, given: set[str | None]
) -> Item:
    """``given``: the advice that stands above."""
    count, late, at_limit = recompiled.count, recompiled.after_warm, recompiled.at_limit
    users = [caller for caller in recompiled.callers if caller]
    caller = called_from(few(users, _CALLERS)) if recompiled.callers else ""
    why = recompiled.category + (_when(recompiled) if run_steps else "")
    if late and count > 1:
        why += f", {'all' if late == count else f'{late} of them'} after it was warm"
    why += ", unfinished" * recompiled.unfinished
    times = _often(count) if count else f"{at_limit} refused at the recompile limit"
    if at_limit and count:
        why += f", {at_limit} more refused at the recompile limit"
    head = f"{called(recompiled)}{caller}: {times}, {took(recompiled.seconds)} ({why})"
    most = _EXAMPLES if recompiled.often else _REASONS
    more = len(recompiled.reasons) - most
    reasons = "; ".join(recompiled.reasons[:most])
    reasons += f"; and {counted(more, 'other reason')}" if more > 0 else ""
    # the list of remedies has the others
    again = "" if recompiled.advice in given else recompiled.advice
    advice = () if remedy else (recompiled.often, again)
    return Item(head, tuple(text for text in (reasons, *advice) if text), remedy)


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
    between = "and" if len({*numbers}) == 2 else "to"
    return f"step {first}" if first == last else f"steps {first} {between} {last}"


def _between(steps: tuple[int, ...]) -> str:
    """``, between steps 20 and 21``: for work outside of steps."""
    first, last = steps[0], steps[-1]
    if first == last:
        return f", between steps {first} and {first + 1}" if first else ", before step 1"
    return f", between steps, after step {first} to after step {last}"


def breaks(report: Report) -> Section | None:
    """Graph breaks, fallbacks, skipped CUDA graphs, failures; ``None`` if there was none."""
    items = [*_breaks(report), *_fallbacks(report)]
    return Section("Graph breaks and what fell back", items=tuple(items)) if items else None


def _breaks(report: Report) -> Iterator[Item]:
    if not report.graph_breaks:
        return
    places = ", ".join(place(at.name, at.file, at.line) for at in report.places)
    several = "" if len(report.breaks) < 2 else f", {len(report.breaks)} reasons"
    head = f"{counted(report.graph_breaks, 'graph break')}{several}"
    yield Item(head, (f"Dynamo resumed at {places}.",) if places else ())
    for item in report.breaks[:_BREAKS]:
        times = "" if item.count == 1 else f", {item.count} times"
        yield Item(f"{of_break(item)}{times}")
    if others := report.breaks[_BREAKS:]:
        often = _often(sum(item.count for item in others))
        yield Item(f"{counted(len(others), 'other reason')}, {often}")


def _fallbacks(report: Report) -> Iterator[Item]:
    if report.fallbacks:
        functions = counted(report.fallbacks, "function")
        yield Item(report.conditions.get("fallback") or f"calls of {functions} run eagerly")
    if skipped := report.conditions.get("cudagraph_skipped"):
        yield Item(skipped)
    if report.failures:
        yield Item(f"{counted(report.failures, 'compilation')} failed")


_NOTABLE = 0.05  # of the longer warm-up: smaller differences of a function are not reported
_LEAST = 0.5  # seconds
_SAME = 0.1
_NAMED = 3
_CACHES = ("inductor cache", "triton cache")
_SHORT = 12  # letters of a commit


def changes(report: Report) -> Section | None:
    """``None`` if the history has no comparable run."""
    changed = report.changed
    if changed is None:
        return None
    now, before, notable = changed.warmup_seconds, changed.before_seconds, _notable(changed)
    title = "Slower than last time" if now > before else "Faster than last time"
    if abs(now - before) < max(_LEAST, _SAME * before):
        title = "Since last time"
    lengths = f"warm-up took {took(now)}, last time {took(before)}"
    head = ": ".join(filter(None, [lengths, "; ".join(_causes(changed, notable))]))
    nothing = () if changed.facts or notable else ("Nothing recorded explains a difference.",)
    remark = (
        f"Compared with {changed.run} of {moment(changed.began)}, the last comparable run. "
        "Arguments are not recorded: other ones may be the difference."
    )
    return Section(title, items=(Item(head, nothing),), remarks=(remark,))


def _notable(changed: Changed) -> list[ChangedFunction]:
    """The functions with a difference that is worth a clause, the largest first."""
    least = max(_LEAST, _NOTABLE * max(changed.warmup_seconds, changed.before_seconds))
    ordered = sorted(changed.functions, key=lambda function: -abs(function.difference))
    return [function for function in ordered if abs(function.difference) >= least]


def _causes(changed: Changed, notable: Sequence[ChangedFunction]) -> Iterator[str]:
    yield from map(_changed_function, notable[:_NAMED])
    if len(notable) > _NAMED:
        yield f"and {counted(len(notable) - _NAMED, 'other function')}"
    yield from (_cache(fact) for fact in changed.facts if fact.what in _CACHES)
    for fact in changed.facts:
        if fact.what not in _CACHES:
            were = "were" if fact.what == "compile threads" else "was"
            yield f"{fact.what} {_shown(fact.now)}, {were} {_shown(fact.before)}"


def _changed_function(function: ChangedFunction) -> str:
    """``inductor 22 min more in `forward` (graph changed: 1,204 operators, was 1,180)``."""
    named, difference = called(function), function.difference
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
    ops, before_ops = function.ops, function.before_ops
    if function.times != function.before_times:
        yield f"compiled {_often(function.times)}, {_often(function.before_times)} last time"
    elif ops is not None and before_ops is not None and ops != before_ops:
        yield f"graph changed: {ops:,} operators, was {before_ops:,}"
    if function.code_changed:
        yield "its code changed"


def _often(times: int) -> str:
    return "once" if times == 1 else f"{times} times"


def _cache(fact: ChangedFact) -> str:
    """Triton's lookups are not recorded, so it is only whether its cache was empty."""
    if fact.what == "inductor cache":
        return f"lookups in Inductor's cache {fact.now} (before: {str(fact.before).split()[-1]})"
    cold, warm = "empty at the start (before: not empty)", "not empty at the start (before: empty)"
    return f"Triton's cache was {cold if fact.now == 'cold' else warm}"


def _shown(value: str | int) -> str:
    text = str(value)
    return text[:_SHORT] if len(text) == 40 else text  # a commit
