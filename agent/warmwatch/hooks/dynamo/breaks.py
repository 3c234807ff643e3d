"""Dynamo's counters, and graph breaks by reason, also those that PyTorch does not count.

``counters["graph_break"]`` lacks three kinds (torch 2.6 to 2.15), after which code is eager too:

- A break at which PyTorch cannot resume, in a loop, a ``with`` or a ``try`` block: it leaves the
  whole frame to Python. The frame's compilation record has the reason from about 2.10 on. Before,
  the record has no guarded code, and one text of ``counters["unimplemented"]`` rose meanwhile.
- What Dynamo refuses where no break is prepared for, such as an LSTM: it compiles what comes before
  and leaves the rest to Python. ``graph_break_reasons`` has the place as ``step_unsupported``; the
  reason is again the text of ``counters["unimplemented"]`` that rose.
- A branch on a tensor. ``graph_break_reasons`` has it as ``generic_jump``. Of one in a loop,
  torch 2.6 records nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from types import SimpleNamespace
from typing import Any

from warmwatch.hooks.dynamo.events import code_being_compiled, must_be_one_graph
from warmwatch.hooks.redaction import graph_break, hint
from warmwatch.shared.bounded import Bounded
from warmwatch.shared.breaks import IGNORED, expected_break
from warmwatch.shared.phrases import resumed
from warmwatch.shared.user_code import is_library, is_pytorch, is_standard, place

MOST_BREAKS = 1_000  # some contain a place each; the ledger reports fewer
MOST_PLACES = 8  # of one reason: each line of the journal has them
_LATEST = 16  # of PyTorch's list, whose stacks are searched
_COUNTED, _RAISED = "graph_break", "unimplemented"  # groups of counters
_LEFT = "Unsupported"
_JUMP = "generic_jump "
STEPPED = "step_unsupported"
_REORDERED = "reorderable_logging_functions"
_BRANCH = "Data-dependent branching"  # what PyTorch calls it where it cannot resume
_NO_RESUME = "Encountered graph break that we cannot resume from"  # as PyTorch logs it
_Key = tuple[tuple[str, Any], ...]
_STACK = "\nfrom user code"  # after PyTorch's words, with lines of the user's


class Breaks:
    """Args:
    counters: Dynamo's, by group. reasons: PyTorch's list of breaks at which it resumed.
    """

    def __init__(self, counters: Mapping[str, Mapping[str, int]], reasons: Sequence[Any]) -> None:
        self._counters, self._reasons = counters, reasons
        self._seen = len(reasons)
        self._last = reasons[-1] if reasons else None
        self._raised, self._group = self._first(_RAISED), counters.get(_RAISED)
        self._uncounted: Bounded[str, int] = Bounded(MOST_BREAKS)
        self._places: Bounded[str, Bounded[_Key, dict[str, Any]]] = Bounded(MOST_BREAKS)
        self._number_uncounted = 0

    def counters(self) -> dict[str, int]:
        """Dynamo's cumulative counters, by the slot's counter names. ``get`` creates no key."""
        counters = self._counters
        none: Mapping[str, int] = {}
        inductor, autograd = counters.get("inductor", none), counters.get("aot_autograd", none)
        breaks = sum(counters.get(_COUNTED, none).values()) + self._number_uncounted
        return {
            "graphs": counters.get("stats", none).get("unique_graphs", 0),
            "graph_breaks": breaks,
            "cudagraph_skips": inductor.get("cudagraph_skips", 0),
            "cache_hits.inductor_fx": inductor.get("fxgraph_cache_hit", 0),
            "cache_misses.inductor_fx": inductor.get("fxgraph_cache_miss", 0),
            "cache_hits.aot_autograd": autograd.get("autograd_cache_hit", 0),
            "cache_misses.aot_autograd": autograd.get("autograd_cache_miss", 0),
        }

    def by_reason(self) -> dict[str, int]:
        """The count of breaks by reason, of the first reasons.

        Each activity reads them, at its begin and end, so their number must not grow with a
        training.
        """
        counts = dict(self._first(_COUNTED))
        for reason, count in self._uncounted.items():
            counts[reason] = counts.get(reason, 0) + count
        return counts

    def compiled(self, metrics: Any) -> None:
        """A compilation of this record ended on this thread."""
        new = self._new_reasons()
        raised = self._raised_meanwhile()
        for value in new[-MOST_BREAKS:]:
            reason, where = reason_of(value), place_of(value)
            if reason == _BRANCH:
                self._count(reason)
            elif reason == STEPPED:
                reason, where = raised or self._reason_at(value), {**where, "eager": "rest"}
                self._count(reason)
            self._add(reason, where)
        if (why := _why_left(metrics, raised)) is not None:
            # PyTorch may have counted it, and then found that it cannot resume
            if all(head_of(reason_of(value)) != head_of(why) for value in new):
                self._count(why)
            for where in _places(metrics):
                self._add(why, where)

    def _add(self, reason: str, where: dict[str, Any]) -> None:
        """The places of a reason, the last one last."""
        if where:
            places = self._places.setdefault(graph_break(reason), Bounded(MOST_PLACES))
            key = tuple(where.items())
            places.pop(key, None)
            places[key] = where

    def _reason_at(self, stepped: Any) -> str:
        """The reason of an earlier entry at the line from which PyTorch cannot resume: it counts no
        error of the user's code, such as a guard on a size that depends on data."""
        at = {(frame.filename, frame.lineno) for frame in stepped.user_stack or ()}
        for value in reversed(self._reasons[-_LATEST:]):
            lines = {(frame.filename, frame.lineno) for frame in value.user_stack or ()}
            if reason_of(value) != STEPPED and at & lines:
                return reason_of(value)
        return _NO_RESUME

    def _new_reasons(self) -> Sequence[Any]:
        """Those since the last call. ``reset`` and ``explain`` clear PyTorch's list."""
        reasons, seen = self._reasons, self._seen
        is_same = 0 < seen <= len(reasons) and reasons[seen - 1] is self._last
        new = reasons[seen if is_same else 0 :]
        self._seen, self._last = len(reasons), new[-1] if new else self._last
        return new

    def place(self, reason: str) -> dict[str, Any]:
        """The innermost traced line of the last break for ``reason``, if PyTorch recorded it.

        One in the user's own code is preferred: an optimizer of PyTorch breaks the graph for the
        same reason as a ``graph_break()`` of the user.

        ``library``: the code that breaks is not the user's. ``caller``: the line that is. ``hint``:
        see ``hint_of``. ``eager``: all, or the rest, of the function of this name is left to
        Python. ``also``: the other places of the reason, with these values.
        """
        helps = {} if (helpful := hint_of(reason)) is None else {"hint": helpful}
        if (places := self._places.get(graph_break(reason))) is None:
            # PyTorch's list does not have the counter's text in each version
            head = graph_break(head_of(reason))
            alike = (text for text in reversed(list(self._places)) if text.startswith(head))
            places = self._places.get(next(alike, ""))
        known = list(places.values()) if places else []
        # code that is compiled by itself, after a break in its caller, has no caller
        known = [one for one in known if not any(one.items() < more.items() for more in known)]
        own = [one for one in known if "library" not in one]
        own = own or [one for one in known if "caller" in one] or known
        if not own:
            return helps
        *also, last = own[-MOST_PLACES:]
        return {**last, **({"also": also} if also else {}), **helps}

    def _first(self, group: str) -> dict[str, int]:
        counter = self._counters.get(group, {})
        return dict(
            counter if len(counter) <= MOST_BREAKS else islice(counter.items(), MOST_BREAKS)
        )

    def _count(self, reason: str) -> None:
        self._number_uncounted += 1
        self._uncounted[reason] = self._uncounted.get(reason, 0) + 1

    def _raised_meanwhile(self) -> str | None:
        """The only text of "unimplemented" that rose; of several, PyTorch may have caught some."""
        group = self._counters.get(_RAISED)  # another one after ``counters.clear()``
        before = self._raised if group is self._group else {}
        self._raised, self._group = self._first(_RAISED), group
        rises = [text for text, count in self._raised.items() if count > before.get(text, 0)]
        return _words(rises[0]) if len(rises) == 1 else None


def reason_of(value: Any) -> str:
    """The reason of an entry of PyTorch's list."""
    reason = str(value.reason)
    return _BRANCH if reason.startswith(_JUMP) else reason


def place_of(value: Any) -> dict[str, Any]:
    """The innermost traced line of an entry of PyTorch's list; empty if unknown. With the user's
    line that called it, if it is a library's.

    Of a call into the standard library (``copy.deepcopy``) or PyTorch, the line of the call, unless
    PyTorch requests the break.
    """
    if not value.user_stack:
        return {}
    frames = value.user_stack[::-1]  # a deep one is read only as far as needed
    inner = next((f for f in frames if not is_standard(f.filename)), frames[0])
    library = is_library(inner.filename)
    frame = inner
    if not expected_break(reason_of(value), inner.name, library=library):
        theirs = (f for f in frames if not is_standard(f.filename) and not is_pytorch(f.filename))
        frame = next(theirs, inner)
    where = place(frame.name, frame.filename, frame.lineno)
    if library:
        where["library"] = True
        if own := next((f for f in frames if not is_library(f.filename)), None):
            where["caller"] = f"{place(None, own.filename, None)['file']}:{own.lineno}"
    return where


def hint_of(reason: str) -> str | None:
    """PyTorch's hint (``redaction.hint``). It names a setting for logging that takes no category of
    a warning; the one that does follows, if this PyTorch has it."""
    text = hint(reason)
    if text and _REORDERED in text and hasattr(sys.modules["torch"]._dynamo.config, IGNORED):
        return f"{text} ({IGNORED})"
    return text


def head_of(reason: str) -> str:
    return reason.strip().partition("\n")[0]


def _why_left(metrics: Any, raised: str | None) -> str | None:
    """Why the frame of this record is left to Python; ``None`` if it is not."""
    if getattr(metrics, "co_name", None) is None:
        return None  # the recompile limit refused it
    failure = getattr(metrics, "fail_type", None)
    if failure is None and getattr(metrics, "has_guarded_code", True) is False:
        return raised
    if str(failure).rpartition(".")[2] == _LEFT and not must_be_one_graph():
        return _words(str(getattr(metrics, "fail_reason", None) or ""))
    return None


def _words(text: str) -> str | None:
    return text.partition(_STACK)[0].strip() or None


def _places(metrics: Any) -> Iterator[dict[str, Any]]:
    """The line of the break, and the function that is left to Python; or that line in it."""
    name, file = getattr(metrics, "co_name", None), getattr(metrics, "co_filename", None)
    line, code = getattr(metrics, "fail_user_frame_lineno", None), code_being_compiled()
    of_code = {at for *_, at in code.co_lines()} if code is not None else set()
    in_it = line in of_code and getattr(metrics, "fail_user_frame_filename", None) == file
    rest = resumed(name)  # a resumed frame is named after the line where it resumes
    if getattr(metrics, "fail_type", None) and (not in_it or (rest and rest[1] != line)):
        yield raised_at(sys.exc_info()[1])
    where = place(name, file, line if in_it else getattr(metrics, "co_firstlineno", None))
    library = {"library": True} if file and is_library(file, None) else {}
    yield {**where, **library, "eager": "all"}


def raised_at(raised: BaseException | None) -> dict[str, Any]:
    """The place of ``place_of`` for an exception that tracing raised; empty if unknown."""
    stack = getattr(raised, "real_stack", None)
    return place_of(SimpleNamespace(reason="", user_stack=list(stack))) if stack else {}
