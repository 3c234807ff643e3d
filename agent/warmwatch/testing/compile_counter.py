"""Counts what this process compiles, for tests: hooks only, no agent, record or thread.

Uses the hooks of the agent. They are installed while a test counts, once PyTorch has imported
Dynamo. Compilations on all threads count, since the backward pass runs on a thread of autograd.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from warmwatch import _guard
from warmwatch.hooks.dynamo.breaks import head_of, reason_of
from warmwatch.hooks.dynamo.events import Compiling
from warmwatch.hooks.installation import Hooks, ImportWatch
from warmwatch.hooks.points import Listener
from warmwatch.hooks.redaction import Redactors, redactors
from warmwatch.process.settings import settings_from
from warmwatch.testing.compile_limits import Cause, Compiled, Place

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
        self._stop: Callable[[], None] = _nothing
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
            self._counting = [one for one in self._counting if one is not compiled]
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
        from warmwatch.hooks import registry

        names = ("events", "compilations", "recompile_reasons", "recompile_limit", "disabled")
        self._hooks.install([one for one in registry.POINTS if one[0] in names], self)
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

    def begin(self, event: str, of: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002
        if of:
            self._compiling.begun(threading.get_ident(), of)
        self._sampled()

    def end(self, event: str) -> None:  # noqa: ARG002 - a listener's signature
        self._sampled()

    def recompile(self, reason: str, category: str, where: Mapping[str, Any]) -> None:  # noqa: ARG002
        self._compiling.recompile(threading.get_ident(), {"reason": reason, "category": category})

    def compilation(self, kind: str, values: Mapping[str, Any]) -> None:
        self._sampled()
        if kind != "forward":
            return
        values = self._compiling.ended(threading.get_ident(), values)
        where = Place(name=values.get("name"), file=values.get("file"), line=values.get("line"))
        with self._lock:
            category = values.get("category")
            if category and "at_limit" not in values:  # else nothing was compiled
                reason = values.get("reason")
                cause = Cause(
                    where=where,
                    reason=self._redaction.recompile(reason) if reason else "",
                    category=category,
                    dynamic=values.get("dynamic"),
                    anew="anew" in values,
                    of_class=values.get("class"),
                )
                self._count("recompiles", cause)
            if failure := values.get("failure"):
                detail = values.get("failure_reason")
                words = self._redaction.graph_break(detail) if detail else failure
                self._count("failures", Cause(where=where, reason=words))
            elif values.get("ops"):
                for one in self._counting:
                    one.seen["graphs"].append(Cause(where=where))

    def fallback(self, values: Mapping[str, Any]) -> None:
        if values.get("setting") == "flex_attention":
            return  # no limit: the test called it uncompiled
        limit = f"it hit {values.get('setting')} ({values.get('limit')})"
        frame = str(values.get("id") or "").rpartition("/")[0]
        with self._lock:
            for one in self._counting:
                if (of := (frame, values.get("name"))) not in one.limited:
                    one.limited.add(of)
                    one.count("fallbacks", Cause(where=Place(name=of[1]), reason=limit))

    def _count(self, what: str, cause: Cause) -> None:
        for one in self._counting:
            one.count(what, cause)

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
            for one in self._counting:
                one.graphs += graphs
                one.breaks += len(breaks)
                one.seen["breaks"] += [
                    Cause(where=where, reason=self._redaction.graph_break(text))
                    for text, where in breaks
                ]


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

    def risen(self) -> tuple[int, list[tuple[str, Place]]]:
        """Number of new graphs since the last call, and new graph breaks with their places.

        The list of breaks has the place of each; it lacks those that skip the whole frame.
        """
        self.take()
        found = [(reason_of(one), _place(one)) for one in self._new_reasons]
        listed = Counter(head_of(text) for text, _ in found)
        for text, count in self._new_counts.items():
            last = self._hooks.break_place(text)
            where = Place(name=last.get("name"), file=last.get("file"), line=last.get("line"))
            known_place = min(count, listed[head_of(text)])
            listed[head_of(text)] -= known_place
            found += [(text, where)] * (count - known_place)
        graphs = self._new_graphs
        self._forget()
        return graphs, found

    def _forget(self) -> None:
        self._new_graphs = 0
        self._new_counts: dict[str, int] = {}
        self._new_reasons: list[Any] = []


def _rise(before: int, now: int) -> int:
    return now - before if now >= before else now


def _place(reason: Any) -> Place:
    """The innermost line of the user's code."""
    stack = getattr(reason, "user_stack", None)
    if not stack:
        return Place()
    frame = stack[-1]
    return Place(name=frame.name, file=frame.filename.rpartition("/")[2], line=frame.lineno)


def _nothing(*_: Any) -> None:
    pass


@cache
def counter() -> CompileCounter:
    return CompileCounter()
