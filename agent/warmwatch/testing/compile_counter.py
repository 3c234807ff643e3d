"""Counts what this process compiles, for tests: hooks only, no agent, record or thread.

The seams are those that the agent listens to (``hooks``), in place as long as somebody counts, and
put there when PyTorch itself has imported Dynamo. What is counted is the whole process's: the
backward of a test runs on a thread of autograd's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from warmwatch import _guard
from warmwatch.hooks.imports import ImportWatch
from warmwatch.hooks.points import Compiling, Hooks
from warmwatch.hooks.redaction import Words, words
from warmwatch.process.settings import settings_from
from warmwatch.testing.compile_limits import Cause, Compiled, Place

_DYNAMO = "torch._dynamo"
_NEEDED = {
    "compilations": "recompiles and graphs",
    "events": "graphs",
    "recompile_limit": "fallbacks",
}


class Counting:
    """What is compiled between :meth:`begin` and :meth:`end`. Several may count at once."""

    def __init__(self) -> None:
        self.compiled = Compiled()

    def begin(self) -> None:
        _tap.add(self.compiled)

    def look(self) -> None:
        """Have what was compiled up to now in ``compiled``."""
        _tap.look()

    def end(self) -> None:
        _tap.remove(self.compiled)


class _Tap:
    """The one listener of this process: a ``Listener``, of what compiles alone."""

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
        self._words: Words = words(full=settings_from(os.environ).full_reasons)

    def _forked(self) -> None:
        self._lock = threading.RLock()  # whoever held it is not here to let it go

    def add(self, compiled: Compiled) -> None:
        with self._lock:
            if self._counting:
                self.look()  # what came before is not this one's
            else:
                self._start()
            self._counting.append(compiled)

    def remove(self, compiled: Compiled) -> None:
        with self._lock:
            self.look()
            compiled.armed, compiled.disabled = self._installed, self._hooks.disabled()
            compiled.troubles += self._troubles
            self._counting = [one for one in self._counting if one is not compiled]
            if not self._counting:
                self._stop()

    def _start(self) -> None:
        self._reset()
        overheard = _guard.overhear(self._failed)
        watch = ImportWatch({_DYNAMO: self._install})

        def stop() -> None:
            watch.stop()
            self._hooks.uninstall_all()
            overheard()

        self._stop = stop
        watch.start()

    def _install(self) -> None:
        from warmwatch.hooks import registry

        seams = ("events", "compilations", "recompile_reasons", "recompile_limit", "disabled")
        self._hooks.install([one for one in registry.POINTS if one[0] in seams], self)
        self._installed = True
        self._troubles += [
            f"this torch does not tell of {what}; torch 2.6 and later do"
            for seam, what in _NEEDED.items()
            if seam in self._hooks.missing
        ]
        self._sample = _Sample()

    def _failed(self, where: str, error: Exception) -> None:
        """Something of ours failed: what was counted may be too little."""
        self._troubles.append(f"warmwatch itself failed in {where}: {error!r}")

    # What the hooks tell.

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
            if "category" in values:
                reason, category = values.get("reason"), values["category"]
                reduced = self._words.recompile(reason) if reason else ""
                self._note("recompiles", Cause(where=where, reason=reduced, category=category))
            if failure := values.get("failure"):
                detail = values.get("failure_reason")
                words = self._words.graph_break(detail) if detail else failure
                self._note("failures", Cause(where=where, reason=words))
            elif values.get("ops"):
                for one in self._counting:
                    one.seen["graphs"].append(Cause(where=where))

    def fallback(self, values: Mapping[str, Any]) -> None:
        limit = f"it hit {values.get('setting')} ({values.get('limit')})"
        with self._lock:
            self._note("fallbacks", Cause(where=Place(name=values.get("name")), reason=limit))

    def evaluation_began(self, model: Any) -> bool:  # noqa: ARG002 - the protocol's
        return False

    def evaluation_ended(self) -> None: ...

    def refusal(self, of: Mapping[str, Any]) -> Exception | None:  # noqa: ARG002 - likewise
        return None

    def precompiled(self, kind: str) -> None: ...

    def turned(self) -> None:
        """Compilation was perhaps turned off: it is asked at the end."""

    def _note(self, what: str, cause: Cause) -> None:
        for one in self._counting:
            setattr(one, what, getattr(one, what) + 1)
            one.seen[what].append(cause)

    def _sampled(self) -> None:
        with self._lock:
            if self._sample is not None:
                self._sample.take()

    def look(self) -> None:
        """Add what has come since the last look to all who count."""
        with self._lock:
            if self._sample is None:
                return
            graphs, breaks = self._sample.risen()
            for one in self._counting:
                one.graphs += graphs
                one.breaks += len(breaks)
                one.seen["breaks"] += [
                    Cause(where=where, reason=self._words.graph_break(text))
                    for text, where in breaks
                ]

    # Of a Listener, what the seams that are installed here never tell.

    @property
    def on_step(self) -> Callable[[Any, Any, Any], None]:
        return _nothing

    def created(self, optimizer: Any) -> None: ...

    @property
    def on_batch(self) -> Callable[[int], None]:
        return _nothing

    def wrap_rare(self, wrap: Callable[[Any], Any]) -> None: ...

    def cached(self, cache: str, *, hit: bool) -> None: ...

    def cache_lookup(self, cache: str, verdict: str, values: Mapping[str, Any]) -> None: ...

    def save_began(self) -> None: ...

    def save_ended(self) -> None: ...

    def cells_left(self) -> None: ...

    def cell_began(self) -> None: ...

    def cudagraph_skipped(self, reason: str, where: Mapping[str, Any]) -> None: ...

    def wrapped(self, way: Mapping[str, Any]) -> None: ...

    def progress(self, of: str, done: int, total: int) -> None: ...


class _Sample:
    """PyTorch's own counts, followed: they fall where somebody clears them, so rises are summed."""

    def __init__(self) -> None:
        from torch._dynamo import utils

        self._utils = utils
        self._graphs, self._told = 0, 0
        self._breaks: dict[str, int] = {}
        self._forget()
        self.take()
        self._forget()

    def take(self) -> None:
        """Look; called where an event begins or ends, so no rise is missed for a fall after it."""
        counters = self._utils.counters
        graphs = counters["stats"].get("unique_graphs", 0) if "stats" in counters else 0
        self._new_graphs += _rise(self._graphs, graphs)
        breaks = dict(counters["graph_break"]) if "graph_break" in counters else {}
        for text, count in breaks.items():
            rise = _rise(self._breaks.get(text, 0), count)
            self._new_counts[text] = self._new_counts.get(text, 0) + rise
        reasons: Sequence[Any] = getattr(self._utils, "graph_break_reasons", ())
        self._new_reasons += reasons[self._told if len(reasons) >= self._told else 0 :]
        self._graphs, self._breaks, self._told = graphs, breaks, len(reasons)

    def risen(self) -> tuple[int, list[tuple[str, Place]]]:
        """Graphs that have come since this was last asked, and breaks with their places.

        Dynamo keeps two accounts of breaks, and each has some that the other lacks: the counters
        no branch on a tensor's value, the list none that gives a whole frame back to Python.
        """
        self.take()
        found = [(str(one.reason), _place(one)) for one in self._new_reasons]
        heads = [_head(text) for text, _ in found]
        for text, count in self._new_counts.items():
            found += [(text, Place())] * (count - heads.count(_head(text)))
        graphs = self._new_graphs
        self._forget()
        return graphs, found

    def _forget(self) -> None:
        self._new_graphs = 0
        self._new_counts: dict[str, int] = {}
        self._new_reasons: list[Any] = []


def _rise(before: int, now: int) -> int:
    return now - before if now >= before else now


def _head(text: str) -> str:
    return text.strip().partition("\n")[0]


def _place(reason: Any) -> Place:
    """The innermost line of the user's."""
    stack = getattr(reason, "user_stack", None)
    if not stack:
        return Place()
    frame = stack[-1]
    return Place(name=frame.name, file=frame.filename.rpartition("/")[2], line=frame.lineno)


def _nothing(*_: Any) -> None:
    pass


_tap = _Tap()
