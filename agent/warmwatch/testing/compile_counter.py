"""Counts what this process compiles, for tests: hooks only, no agent, record or thread.

Uses the hooks of the agent. They are installed while a test counts, once PyTorch has imported
Dynamo. Compilations on all threads count, since the backward pass runs on a thread of autograd.

``pytest_plugin`` reports what a test compiled, its limits, and where they differ. The monitor shows
reasons in the same words.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from warmwatch import _guard
from warmwatch.hooks import registry
from warmwatch.hooks.dynamo.breaks import STEPPED, head_of, hint_of, place_of, reason_of
from warmwatch.hooks.dynamo.events import Compiling
from warmwatch.hooks.installation import Hooks, ImportWatch
from warmwatch.hooks.points import Fact, Listener
from warmwatch.hooks.redaction import Redactors, redactors
from warmwatch.process.settings import settings_from
from warmwatch.shared.advice import advice_for
from warmwatch.shared.breaks import break_remedy_for, plain_break
from warmwatch.shared.fallbacks import LIMIT, REMEDIES, cause_of, function_of
from warmwatch.shared.fallbacks import words as words_of_fallback
from warmwatch.shared.phrases import broken_place, counted, one_line, place
from warmwatch.shared.reasons import plain

NAMES = ("graphs", "breaks", "recompiles", "fallbacks", "failures")
Allowed = int | tuple[int, int]
_NOUNS = {
    "graphs": ("graph", "graphs"),
    "breaks": ("graph break", "graph breaks"),
    "recompiles": ("recompile", "recompiles"),
    "fallbacks": ("function left to run eagerly", "functions left to run eagerly"),
    "failures": ("failed compilation", "failed compilations"),
}
_MOST = 10
_LONGEST = 160
_OFF = {
    "environment": "by TORCHDYNAMO_DISABLE",
    "config": "by torch._dynamo.config.disable",
    "stance": 'by torch.compiler.set_stance("force_eager")',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The user's function or line; ``file`` is a base name."""

    name: str | None = None
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One recompile, break, graph, fallback or failure; ``reason`` is redacted.

    ``dynamic``, ``last_batch``, ``anew``, ``parameter``: as ``advice`` takes them. ``of_class``,
    ``actual``: as ``plain`` takes them. ``hint``, ``library``, ``caller``: as ``break_remedy``
    takes them.
    """

    where: Place = Place()
    reason: str = ""
    category: str | None = None
    dynamic: bool | None = None
    last_batch: Sequence[int] | None = None
    parameter: str | None = None
    anew: bool = False
    of_class: str | None = None
    actual: str | None = None
    hint: str | None = None
    library: bool = False
    caller: str | None = None

    @property
    def name(self) -> str | None:
        return self.where.name


@dataclass(slots=True, kw_only=True)
class Compiled:
    """What was compiled so far.

    Attributes:
        counts: the numbers, by NAMES; graphs as Dynamo counts them.
        seen: place and reason of each, by NAMES.
        limited: the function of each fallback.
        disabled: what disabled compilation at the end; empty if it was enabled.
        armed: Dynamo was imported.
        troubles: why counts may be wrong, one sentence each.
    """

    counts: Counter[str] = field(default_factory=Counter)
    seen: dict[str, list[Cause]] = field(default_factory=lambda: {name: [] for name in NAMES})
    limited: set[tuple[Any, ...]] = field(default_factory=set)
    disabled: str = ""
    armed: bool = False
    troubles: list[str] = field(default_factory=list)

    def count(self, what: str, cause: Cause) -> None:
        self.counts[what] += 1
        self.seen[what].append(cause)

    def __str__(self) -> str:
        return ", ".join(_counted(name, self.counts[name]) for name in NAMES)


def checked(limits: Mapping[str, object]) -> dict[str, Allowed]:
    """The limits of a marker or block, without those that are ``None``.

    Raises:
        TypeError: a name or a limit is invalid.
    """
    values: dict[str, Allowed] = {}
    for name, value in limits.items():
        if name not in NAMES:
            raise TypeError(f"warmwatch_compiles counts {', '.join(NAMES)}, not {name!r}")
        if value is None:
            continue
        pair = value if isinstance(value, tuple) else (value, value)
        numbers = [number for number in pair if type(number) is int and number >= 0]
        if len(pair) != 2 or len(numbers) != 2 or numbers[0] > numbers[1]:
            raise TypeError(
                f"warmwatch_compiles({name}={value!r}): give a number, or (least, most)"
            )
        values[name] = (numbers[0], numbers[1]) if isinstance(value, tuple) else numbers[0]
    return values


def complaint(compiled: Compiled, limits: dict[str, Allowed]) -> str | None:
    """The violated limits with reasons and remedies; ``None`` if there are none."""
    lines = [f"  {trouble}" for trouble in compiled.troubles]
    if not lines and (why := _why_nothing(compiled, limits)):
        lines = [f"  {why}"]
    for name, limit in limits.items():
        least, most = limit if isinstance(limit, tuple) else (limit, limit)
        count = compiled.counts[name]
        if least <= count <= most:
            continue
        expected = f"{least}" if least == most else f"{least} to {most}"
        lines.append(f"  {_counted(name, count)}, expected {expected}")
        lines += [f"    {line}" for line in _each_once(name, compiled.seen[name])]
    if not lines:
        return None
    return "\n".join(["compiled otherwise than expected:", *lines])


def _why_nothing(compiled: Compiled, limits: dict[str, Allowed]) -> str | None:
    """Why nothing could compile. A limit of 0 recompiles proves nothing then: fail."""
    if any(compiled.counts.values()) or not limits or limits.get("graphs") == 0:
        return None
    if not compiled.armed:
        return "nothing could compile: torch._dynamo was not imported (torch.compile imports it)"
    if compiled.disabled:
        return f"nothing could compile: compilation is disabled {_OFF[compiled.disabled]}"
    return None


def _counted(name: str, count: int) -> str:
    return counted(count, *_NOUNS[name])


def _each_once(name: str, causes: list[Cause]) -> Iterator[str]:
    """Each distinct cause with its remedy."""
    times: dict[tuple[str, str | None], int] = {}
    for number, cause in enumerate(causes, 1):
        later = (other for other in causes[number:] if other.where == cause.where)
        described = _cause(name, cause, later)
        times[described] = times.get(described, 0) + 1
    for (text, remedy), count in list(times.items())[:_MOST]:
        yield text if count == 1 else f"{text} ({count} times)"
        if remedy:
            yield f"  {remedy}"
    if len(times) > _MOST:
        yield f"and {len(times) - _MOST} more"


def _cause(name: str, cause: Cause, later: Iterable[Cause] = ()) -> tuple[str, str | None]:
    where = place(cause.where.name, cause.where.file, cause.where.line) or "somewhere"
    if name == "graphs":
        return where, None
    if name == "breaks":
        text = plain_break(cause.reason, cause.where.name, library=cause.library) or one_line(
            cause.reason, _LONGEST
        )
        of = cause.where
        where = broken_place(of.name, of.file, of.line, cause.caller) or "somewhere"
        return f"{where}: {text}", break_remedy_for(cause)
    if name == "fallbacks":
        kind, limit = cause.category or LIMIT, f" ({cause.reason})" if cause.reason else ""
        return f"{words_of_fallback(kind, where)}{limit}", REMEDIES[kind]
    if name == "failures":
        return f"{where}: {one_line(cause.reason, _LONGEST)}", None
    why = (
        plain(cause.reason, cause.category, cause.of_class, cause.parameter, cause.actual)
        or one_line(cause.reason, _LONGEST)
        or "PyTorch gives no reason"
    )
    return f"{where}: {why}", advice_for(cause, later=later)


_DYNAMO = "torch._dynamo"
_NEEDED = {
    "compilations": "recompiles and graphs",
    "events": "graphs",
    "recompile_limit": "fallbacks",
}


class CompileCounter(Listener):
    """The listener of this process's compilations. Several tests may count simultaneously."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._counting: list[Compiled] = []
        self._stop: Callable[[], None] = lambda: None
        self._reset()
        os.register_at_fork(after_in_child=self._forked)

    def _reset(self) -> None:
        self._hooks, self._installed = Hooks(), False
        self._sample: _Sample | None = None
        self._compiling = Compiling()
        self._troubles: list[str] = []
        self._redaction: Redactors = redactors(full=settings_from(os.environ).full_reasons)

    def _forked(self) -> None:
        self._lock = threading.RLock()  # the thread that held it does not exist in the child

    def add(self, compiled: Compiled) -> None:
        """Count in ``compiled`` from now on, until ``remove``."""
        with self._lock:
            if self._counting:
                self.update()  # earlier compilations do not count for this one
            else:
                self._start()
            self._counting.append(compiled)

    def remove(self, compiled: Compiled) -> None:
        with self._lock:
            self.update()
            compiled.armed, compiled.disabled = self._installed, self._hooks.disabled()
            compiled.troubles += self._troubles
            self._counting = [
                compilation for compilation in self._counting if compilation is not compiled
            ]
            if not self._counting:
                self._stop()

    def _start(self) -> None:
        self._reset()
        disconnect = _guard.also_connect(self._failed)
        watch = ImportWatch({_DYNAMO: self._install})

        def stop() -> None:
            watch.stop()
            self._hooks.uninstall_all()
            disconnect()

        self._stop = stop
        watch.start()

    def _install(self) -> None:
        names = {
            *("events", "compilations", "recompile_reasons", "recompile_limit", "disabled"),
            "batches",
        }
        self._hooks.install([pair for pair in registry.POINTS if pair[0] in names], self)
        self._installed = True
        self._troubles += [
            f"this PyTorch version does not report {what}; torch 2.6 and later do"
            for name, what in _NEEDED.items()
            if name in self._hooks.missing
        ]
        self._sample = _Sample(self._hooks)

    def _failed(self, where: str, error: Exception) -> None:
        """The sink of the guard: after an internal error the counts may be too low."""
        self._troubles.append(f"warmwatch itself failed in {where}: {error!r}")

    # Called by the hooks.

    def begin(self, event: str, target: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002
        if target:
            self._compiling.begun(threading.get_ident(), target)
        self._sampled()

    def end(self, event: str) -> None:  # noqa: ARG002 - a listener's signature
        self._sampled()

    def post(self, fact: Fact, values: Mapping[str, Any]) -> None:
        if fact == "recompile":
            self._compiling.recompile(threading.get_ident(), values)
        elif fact == "compilation":
            self._compilation(values)
        elif fact == "fallback":
            self._fallback(values)

    def _compilation(self, values: Mapping[str, Any]) -> None:
        self._sampled()
        if values["kind"] != "forward":
            return
        values = self._compiling.ended(threading.get_ident(), values)
        where = _place(values)
        with self._lock:
            category = values.get("category")
            if category and "at_limit" not in values:  # else nothing was compiled
                reason = values.get("reason")
                cause = Cause(
                    where=where,
                    reason=self._redaction.recompile(reason) if reason else "",
                    category=category,
                    dynamic=values.get("dynamic"),
                    last_batch=values.get("last_batch"),
                    parameter=values.get("parameter"),
                    anew="anew" in values,
                    of_class=values.get("class"),
                    actual=values.get("actual"),
                )
                self._count("recompiles", cause)
            if failure := values.get("failure"):
                detail = values.get("failure_reason")
                text = self._redaction.graph_break(detail) if detail else failure
                self._count("failures", Cause(where=where, reason=text))
            elif values.get("ops"):
                for compilation in self._counting:
                    compilation.seen["graphs"].append(Cause(where=where))

    def _fallback(self, values: Mapping[str, Any]) -> None:
        cause, items = cause_of(values.get("setting")), function_of(values)
        limit = f"{values.get('setting')} of {values.get('limit')}" if cause == LIMIT else ""
        result = Cause(
            where=Place(name=items[1], file=items[2], line=items[3]), reason=limit, category=cause
        )
        with self._lock:
            for compilation in self._counting:
                if items not in compilation.limited:
                    compilation.limited.add(items)
                    compilation.count("fallbacks", result)

    def _count(self, what: str, cause: Cause) -> None:
        for compilation in self._counting:
            compilation.count(what, cause)

    def _sampled(self) -> None:
        with self._lock:
            if self._sample is not None:
                self._sample.take()

    def update(self) -> None:
        """Add graphs and breaks since the last update to every ``Compiled``."""
        with self._lock:
            if self._sample is None:
                return
            graphs, breaks = self._sample.risen()
            causes = [
                Cause(
                    where=_place(place),
                    reason=self._redaction.graph_break(text),
                    hint=hint_of(text),
                    library="library" in place,
                    caller=place.get("caller"),
                )
                for text, place in breaks
            ]
            for compilation in self._counting:
                compilation.counts.update(graphs=graphs, breaks=len(causes))
                compilation.seen["breaks"] += causes


class _Sample:
    """The sum of rises of PyTorch's counters, which fall when a program clears them."""

    def __init__(self, hooks: Hooks) -> None:
        from torch._dynamo import utils

        self._utils, self._hooks = utils, hooks
        self._graphs, self._reasons = 0, 0
        self._breaks: dict[str, int] = {}
        self._forget()
        self.take()
        self._forget()

    def take(self) -> None:
        """Read the counters. Called at every begin and end of an event, so no rise is missed."""
        counters = self._utils.counters
        graphs = counters["stats"].get("unique_graphs", 0) if "stats" in counters else 0
        self._new_graphs += _rise(self._graphs, graphs)
        breaks = self._hooks.graph_breaks()
        for text, count in breaks.items():
            rise = _rise(self._breaks.get(text, 0), count)
            self._new_counts[text] = self._new_counts.get(text, 0) + rise
        reasons: Sequence[Any] = getattr(self._utils, "graph_break_reasons", ())
        self._new_reasons += reasons[self._reasons if len(reasons) >= self._reasons else 0 :]
        self._graphs, self._breaks, self._reasons = graphs, breaks, len(reasons)

    def risen(self) -> tuple[int, list[tuple[str, Mapping[str, Any]]]]:
        """Number of new graphs since the last call, and new graph breaks with their places.

        The list of breaks has the place of each; it lacks those that skip the whole frame.
        """
        self.take()
        pairs: list[tuple[str, Mapping[str, Any]]] = [
            (reason_of(reason), place_of(reason))
            for reason in self._new_reasons
            if reason_of(reason) != STEPPED  # counted by the text that rose
        ]
        listed = Counter(head_of(text) for text, _ in pairs)
        for text, count in self._new_counts.items():
            known_place = min(count, listed[head_of(text)])
            listed[head_of(text)] -= known_place
            pairs += [(text, self._hooks.break_place(text))] * (count - known_place)
        graphs = self._new_graphs
        self._forget()
        return graphs, pairs

    def _forget(self) -> None:
        self._new_graphs = 0
        self._new_counts: dict[str, int] = {}
        self._new_reasons: list[Any] = []


def _rise(before: int, now: int) -> int:
    return now - before if now >= before else now


def _place(target: Mapping[str, Any]) -> Place:
    return Place(name=target.get("name"), file=target.get("file"), line=target.get("line"))


@cache
def counter() -> CompileCounter:
    return CompileCounter()
