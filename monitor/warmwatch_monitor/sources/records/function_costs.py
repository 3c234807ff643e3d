"""The cost of each function, summed line by line from the journal, in bounded memory.

A backward, and run-time autotuning or recording, has no name of its own: it belongs to the function
that last used its compile id (``torch._dynamo.reset()`` restarts the ids). Beyond MOST functions
the cheapest are summed, so the sum over all is that of all lines. A summed function that compiles
again gets a new entry, and counts once among the summed ones.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from warmwatch_monitor.model import OF_GRAPHS, Compilation, Cost, FunctionCost, Recordings

MOST = 100
_SLOWEST = 3
_MOST_IDS = 1_000
_MOST_MERGED = 10_000  # distinct summed functions
_OTHERS_JITS = frozenset({"triton", "cpp_extension", "custom", "outside"})  # these compile no frame

_Key = tuple[str | None, str | None, int | None]


class Functions:
    """The functions of one journal."""

    def __init__(self) -> None:
        self._functions: dict[_Key, FunctionCost] = {}
        self._rest: FunctionCost | None = None
        self._merged: set[int] = set()
        self._by_id: dict[str, _Key] = {}
        self._dearest: tuple[FunctionCost, ...] | None = ()
        self._recordings: dict[str, Recordings] = {}  # by compile id
        self.recordings: tuple[Recordings, ...] = ()

    @property
    def most_expensive(self) -> tuple[FunctionCost, ...]:
        """All functions, the most expensive first and the sum of the others last.

        Cached until the next compilation is added.
        """
        if self._dearest is None:
            ordered = sorted(self._functions.values(), key=lambda function: -function.seconds)
            self._dearest = (*ordered, *([self._rest] if self._rest else ()))
        return self._dearest

    def fold(self, compiled: Compilation) -> None:
        if compiled.kind in _OTHERS_JITS:
            return
        key = self._whose(compiled)
        cost = _alone(compiled, key)
        if compiled.id is not None:
            self._record(compiled.id, compiled, key)
        function = self._functions.get(key)
        self._functions[key] = cost if function is None else _sum(function, cost)
        self._dearest = None
        if len(self._functions) > MOST:
            self._merge(min(self._functions, key=lambda k: self._functions[k].seconds))

    def _whose(self, compiled: Compilation) -> _Key:
        if compiled.name is None:
            return self._by_id.get(compiled.id or "", (None, None, None))
        key = (compiled.name, compiled.file, compiled.line)
        if compiled.id is not None:
            self._by_id.pop(compiled.id, None)
            self._by_id[compiled.id] = key
            if len(self._by_id) > _MOST_IDS:
                del self._by_id[next(iter(self._by_id))]
        return key

    def _record(self, compile_id: str, compiled: Compilation, key: _Key) -> None:
        """Add the CUDA graphs of one entry; a forward with the id again removes earlier ones."""
        before = self._recordings.get(compile_id)
        if compiled.new_sizes or compiled.recorded:
            self._recordings[compile_id] = _recorded(before, compiled, key)
            if len(self._recordings) > MOST:
                del self._recordings[next(iter(self._recordings))]
        elif before is not None and compiled.kind == "forward":
            del self._recordings[compile_id]
        else:
            return
        self.recordings = tuple(self._recordings.values())

    def _merge(self, cheapest: _Key) -> None:
        rest, new = self._rest or FunctionCost(), hash(cheapest) not in self._merged
        if len(self._merged) < _MOST_MERGED:
            self._merged.add(hash(cheapest))
        self._rest = replace(
            _sum(rest, self._functions.pop(cheapest)), others=rest.others + new, caller=None
        )


def _alone(compiled: Compilation, key: _Key) -> FunctionCost:
    return FunctionCost(
        name=key[0],
        file=key[1],
        line=key[2],
        compilations=int(compiled.kind in OF_GRAPHS and not compiled.at_limit),
        failures=int(compiled.failure is not None),
        seconds=compiled.seconds or 0.0,
        cache_hits=int(compiled.cache == "hit"),
        cache_misses=int(compiled.cache == "miss"),
        cost=compiled.cost or Cost(),
        caller=compiled.caller,
    )


def _recorded(before: Recordings | None, compiled: Compilation, key: _Key) -> Recordings:
    cost, recordings = compiled.cost or Cost(), before or Recordings()
    more = compiled.new_sizes or 0
    forward, backward = recordings.sizes
    seconds = cost.phase_seconds.get("cudagraph", compiled.seconds or 0.0)
    return Recordings(
        name=key[0],
        file=key[1],
        line=key[2],
        sizes=(forward, backward + more) if compiled.backward else (forward + more, backward),
        recorded=recordings.recorded + (compiled.recorded or 0),
        seconds=recordings.seconds + seconds,
        first_reserved=cost.reserved if before is None else before.first_reserved,
        last_reserved=_later(recordings.last_reserved, cost.reserved),
    )


def _sum(before: FunctionCost, more: FunctionCost) -> FunctionCost:
    return replace(
        before,
        compilations=before.compilations + more.compilations,
        failures=before.failures + more.failures,
        seconds=before.seconds + more.seconds,
        cache_hits=before.cache_hits + more.cache_hits,
        cache_misses=before.cache_misses + more.cache_misses,
        cost=_both(before.cost, more.cost),
        caller=before.caller if more.caller in (None, before.caller) else None,
    )


def _both(before: Cost, more: Cost) -> Cost:
    kernels = [n for n in (before.kernels, more.kernels) if n is not None]
    longest = sorted((*before.slowest, *more.slowest), key=lambda kernel: -kernel[1])
    return Cost(
        phase_seconds=_added(before.phase_seconds, more.phase_seconds),
        ops=_later(before.ops, more.ops),
        guards=_later(before.guards, more.guards),
        guard_seconds=before.guard_seconds if more.guard_seconds is None else more.guard_seconds,
        kernels=sum(kernels) if kernels else None,
        slowest=tuple(longest[:_SLOWEST]),
        allocated=_later(before.allocated, more.allocated),
        reserved=_later(before.reserved, more.reserved),
    )


def _later(before: int | None, more: int | None) -> int | None:
    return before if more is None else more


def _added(before: Mapping[str, float], more: Mapping[str, float]) -> dict[str, float]:
    names = dict.fromkeys((*before, *more))
    return {name: before.get(name, 0.0) + more.get(name, 0.0) for name in names}
