"""What the lines of a journal add up to, line by line, in bounded memory: the cost of each
function, and the dimensions and numbers that changed repeatedly.

A backward, and run-time autotuning or recording, has no name of its own: it belongs to the function
that last used its compile id (``torch._dynamo.reset()`` restarts the ids). Beyond MOST functions
the cheapest are summed, so the sum over all is that of all lines. A summed function that compiles
again gets a new entry, and counts once among the summed ones.

For each recompile Dynamo reports which guard of which compiled entry did not fit. The entry
compiled last comes first, and its guard is the cause; the lines of the others only add further
values. A guard on a symbol (``2 <= x.size()[1]``) contains no value; then another line may. A guard
on a number (``self.step == 3``) contains the compiled values, never the new one, also at the limit,
where nothing is compiled. Everything is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared.advice import advice_for, of_varying
from warmwatch.shared.guard_remedies import ENTRY, LOCAL
from warmwatch.shared.values import STRICT_EXPORT
from warmwatch.shared.verdict import REPEATED_STEPS
from warmwatch_monitor.figures.compile import OF_GRAPHS
from warmwatch_monitor.figures.rank import Place
from warmwatch_monitor.model.journal import (
    MOST_METHODS,
    AgentError,
    Beginning,
    CacheLookup,
    Compilation,
    CompileCall,
    Cost,
    CudagraphSkip,
    Ended,
    Fallback,
    GraphBreak,
    Line,
    LongStep,
    Recompile,
    Spill,
    Warm,
)
from warmwatch_monitor.model.records import (
    BEGIN,
    FEWEST_STEPS,
    CacheBypass,
    FunctionCost,
    Recordings,
    VaryingDim,
)

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


MOST_DIMS = 50
MOST_VALUES = 100
_MOST_FORWARDS = 20  # recompiles whose backward may still come
_LINES_READ = 100  # of a reason: one for each compiled entry

_SIZE = (
    r"tensor '(?P<tensor>.{1,200})' size mismatch at index (?P<dim>\d{1,3})\. "
    r"expected (?P<old>\d{1,15}), actual (?P<new>\d{1,15})\s*$"
)
_INTEGER = r"-?\d{1,15}"
_NUMBER = rf"(?P<name>[\w.\[\]'\"]{{1,200}}) == (?P<old>{_INTEGER})$"
# Search for the fixed part, then backwards: forwards, each character could begin a name.
_SYMBOL = r"\.size\(\)\[(?P<dim>\d{1,3})\]"
_NAME_BEFORE = r"[\w.\[\]'\"]{1,200}"

_OF_NUMBERS = "python_value"
_Dim = tuple[str | None, str | None, int | None, str, int | None, bool]


class _Size(Struct, frozen=True, kw_only=True):
    """One line's size of one dimension; no values if it compares a symbol.

    A number has no ``dim``.
    """

    tensor: str
    dim: int | None = None
    values: tuple[int, ...] = ()


class Varying:
    """Collects them. ``dims`` is the same object until something is added to it."""

    def __init__(self) -> None:
        self.dims: tuple[VaryingDim, ...] = ()
        self._known: dict[_Dim, VaryingDim] = {}
        self._by_id: dict[str, _Dim] = {}
        self._warm: tuple[int, int] | None = None  # when it became warm, and the step count then
        self._before: float | None = None  # mean step of the last span of clean steps
        self._steps = 0  # the step count when compile activity began last
        self._first: dict[_Dim, int] = {}  # the same at the recompiles of each

    @property
    def warm_since(self) -> tuple[int, int] | None:
        """The begin of the present span of clean steps, and the step count then."""
        return self._warm

    def warm(self, at_ns: int, steps: int) -> None:
        self._warm = at_ns, steps
        for key, dim in self._known.items():  # without steps nothing is within one
            self._known[key] = replace(dim, within_step=0 <= self._first[key] < steps)
        self._publish()

    def begin(self, at_ns: int, steps: int) -> None:
        """Compile activity began: the clean steps so far are one span."""
        self._steps = steps
        span, self._warm = self._warm, None
        if span is None or steps - span[1] < FEWEST_STEPS or at_ns <= span[0]:
            return
        took_ns, count = at_ns - span[0], steps - span[1]
        self._before = took_ns / count / 1e9
        for key, dim in self._known.items():
            spent = dim.since_ns + took_ns
            self._known[key] = replace(dim, since_ns=spent, since_steps=dim.since_steps + count)
        self._publish()

    def compilation(self, made: Compilation) -> None:
        """Add a compilation: a recompile for a size or a number, or its backward."""
        if made.at_limit and made.category != _OF_NUMBERS:
            return  # nothing was compiled for that size
        if made.parameter:
            return  # padding a parameter helps nobody
        key = self._by_id.get(made.id) if made.id else None
        if made.kind == "backward":
            if key is not None and made.seconds:
                dim = self._known[key]
                self._known[key] = replace(dim, seconds=(dim.seconds or 0.0) + made.seconds)
                self._publish()
        elif made.kind == "forward" and made.category in ("shape", _OF_NUMBERS) and made.reason:
            self._recompile(made, made.reason)

    def _recompile(self, made: Compilation, reason: str) -> None:
        sizes = list(sizes_in(reason))
        if not sizes or sizes[0] is None:
            return
        cause = sizes[0]
        if (cause.dim is None) != (made.category == _OF_NUMBERS):
            return  # something else than the first guard changed
        # an evaluation has graphs of its own: its sizes are none of a step
        key = made.name, made.file, made.line, cause.tensor, cause.dim, made.evaluating
        if key not in self._known and len(self._known) >= MOST_DIMS:
            return
        of_it = [s for s in sizes if s and (s.tensor, s.dim) == (cause.tensor, cause.dim)]
        numbers = {value for size in of_it for value in size.values}
        is_told = cause.dim is None and re.fullmatch(_INTEGER, made.actual or "") is not None
        if is_told and not made.at_limit:
            numbers.add(int(made.actual or ""))
        dim = self._more(self._known.get(key), made, cause, numbers)
        dim = replace(dim, helps=of_varying(made.category, reason, made.dynamic) or dim.helps)
        if cause.dim is None:
            # PyTorch compares with each value that was compiled, and does not report the new one,
            # which the agent may have read
            entries = sum(bool(re.match(ENTRY, line)) for line in reason.split("\n"))
            one_more = not (is_told or made.at_limit) and len(of_it) == entries
            dim = replace(dim, one_more=one_more)
        self._known[key] = replace(dim, within_step=False)
        if self._first.setdefault(key, self._steps) != self._steps or made.evaluating:
            self._first[key] = -1  # it changes from step to step, or from batch to batch
        if made.id:
            self._by_id[made.id] = key
            while len(self._by_id) > _MOST_FORWARDS:
                del self._by_id[next(iter(self._by_id))]
        self._publish()

    def _more(
        self, item: VaryingDim | None, made: Compilation, cause: _Size, numbers: set[int]
    ) -> VaryingDim:
        if item is None:
            where = {"name": made.name, "file": made.file, "line": made.line}
            dim = VaryingDim(tensor=cause.tensor, dim=cause.dim, **where)  # type: ignore[arg-type]
            item = replace(dim, before_seconds=self._before)
        values = tuple(sorted({*item.values, *numbers}))
        ends = [*values, *(end for end in (item.lowest, item.highest) if end is not None)]
        seconds = item.seconds
        took = None if made.at_limit else made.seconds  # refused: nothing was compiled
        return replace(
            item,
            values=values if len(values) <= MOST_VALUES else item.values,
            complete=item.complete and len(values) <= MOST_VALUES,
            lowest=min(ends, default=None),
            highest=max(ends, default=None),
            count=item.count + (not made.at_limit),
            timed=item.timed + (took is not None),
            seconds=seconds if took is None else (seconds or 0.0) + took,
            last_id=made.id,
            dynamic=made.dynamic,
        )

    def _publish(self) -> None:
        self.dims = tuple(self._known.values())


def sizes_in(reason: str) -> Iterator[_Size | None]:
    """The size in each line of a reason; ``None`` for a line about something else."""
    for line in reason.strip().split("\n", _LINES_READ)[:_LINES_READ]:
        guard = re.sub(LOCAL, r"\1", re.sub(ENTRY, "", line).partition("  # ")[0].strip())
        if match := re.match(_SIZE, guard):
            values = int(match["old"]), int(match["new"])
            yield _Size(tensor=match["tensor"], dim=int(match["dim"]), values=values)
        elif (at := re.search(_SYMBOL, guard)) and (name := _name_before(guard, at.start())):
            yield _Size(tensor=name, dim=int(at["dim"]))
        elif match := re.fullmatch(_NUMBER, guard):
            yield _Size(tensor=match["name"], values=(int(match["old"]),))
        else:
            yield None


def _name_before(guard: str, end: int) -> str | None:
    """The tensor's name before ``end``."""
    match = re.match(_NAME_BEFORE, guard[max(0, end - 200) : end][::-1])
    return match[0][::-1] if match else None


MOST_EVENTS = 20
_MOST_FUNCTIONS = 10_000
MOST_LONG_STEPS = 5
SLOWED = 10  # long steps in a row that are a slower level, not chance
MOST_BREAKS = MOST_SPILLS = 100  # as many as an agent writes

Of = TypeVar("Of", Beginning, Compilation)


class JournalSums:
    """The sums over all lines, and the last lines of each kind.

    Each attribute is the same object until something is added to it, so that results can be cached.

    Attributes:
        compilations: the last ones, oldest first. dearest: the one with a remedy that took longest
            of all; dearest_seconds: with what belongs to it. strict_exports: the sum of all.
            fallbacks: the last frames that hit the recompile limit, in the same order. skips: the
            last skipped CUDA graphs. long_steps: the longest, then the last ones. slowed: the first
            of the last SLOWED or more of them in a row. spills: kernels by name, in the order of
            their first line. methods: of modules passed to ``torch.compile``. bypasses: of compile
            caches, by cache and reason.
        varying: dimensions that changed. functions: the cost of each. beginning, recompile: the
            last one. exception, raised, refusal: of the end. agent_error: the agent's last one.
        was_warm: whether the rank has been warm.
    """

    def __init__(self) -> None:
        self.was_warm = False
        self.compilations: tuple[Compilation, ...] = ()
        self.dearest: Compilation | None = None
        self.dearest_seconds = 0.0
        self._dearest_id: str | None = None
        self.strict_exports = FunctionCost()
        self._since_export: set[tuple[str | None, str | None, int | None]] = set()  # functions
        self.fallbacks: tuple[Fallback, ...] = ()
        self.skips: tuple[CudagraphSkip, ...] = ()
        self.long_steps: tuple[LongStep, ...] = ()
        self.slowed: LongStep | None = None
        self._in_a_row: tuple[LongStep, int] | None = None  # the first, and how many
        self.breaks: tuple[GraphBreak, ...] = ()
        self.methods: tuple[str, ...] = ()
        self.spills: tuple[Spill, ...] = ()
        self.bypasses: tuple[CacheBypass, ...] = ()
        self.functions = Functions()
        self.varying = Varying()
        self.beginning: Beginning | None = None
        self.recompile: Recompile | None = None
        self.lookup: str | None = None  # of the compilation in progress, as ``Compilation.cache``
        self.exception: str | None = None
        self.raised: Place | None = None
        self.refusal: str | None = None
        self.agent_error: str | None = None

    def add(self, line: Line) -> None:  # noqa: C901 - one case for each event
        """Add one line."""
        match line:
            case Compilation():
                self._compilation(line)
            case Beginning():
                self.beginning, self.lookup = self._with_export(line), None
                self.varying.begin(line.at_ns, line.step)
            case Warm():
                self.was_warm = True
                self.varying.warm(line.t, line.at)
            case Recompile():
                self.recompile = line
            case GraphBreak():
                self._break(line)
            case Fallback():
                self.fallbacks = (*self.fallbacks, line)[-MOST_EVENTS:]
            case CudagraphSkip():
                self.skips = (*self.skips, line)[-MOST_EVENTS:]
            case CacheLookup(reason=str(reason)):
                self._bypass(line.cache, reason)
            case CacheLookup(verdict="hit" | "miss" as verdict):  # one miss is enough
                self.lookup = "miss" if self.lookup == "miss" else verdict
            case Spill():  # a kernel that is compiled again replaces its earlier line
                others = tuple(spill for spill in self.spills if spill.kernel != line.kernel)
                self.spills = (*others, line)[-MOST_SPILLS:]
            case LongStep():
                self._long_step(line)
            case CompileCall():
                methods = dict.fromkeys((*self.methods, *line.methods))
                self.methods = tuple(methods)[:MOST_METHODS]
            case Ended():
                self.exception, self.raised = line.exception, line.raised
                self.refusal = line.refusal
            case AgentError():
                self.agent_error = f"{line.where}: {line.message}"

    def text_bytes(self) -> int:
        """The approximate size of the stored texts."""
        stored: tuple[Struct, ...] = (*self.compilations, *self.fallbacks, *self.skips)
        stored = (*stored, *self.breaks, *self.spills, *self.bypasses)
        stored = (*stored, *self.functions.most_expensive, *self.functions.recordings)
        values: list[Any] = [
            getattr(struct, name) for struct in stored for name in struct.__struct_fields__
        ]
        texts = (*self.methods, *(value for value in values if isinstance(value, str)))
        return sum(map(len, texts))

    def _compilation(self, new: Compilation) -> None:
        self.lookup = None
        new = self._with_export(replace(new, after_warm=self.was_warm))
        self.compilations = (*self.compilations, new)[-MOST_EVENTS:]
        if self._is_dearest(new):
            self.dearest, self.dearest_seconds, self._dearest_id = new, new.seconds or 0.0, new.id
        elif new.id is not None and new.id == self._dearest_id:
            if new.kind in BEGIN:
                self._dearest_id = None  # after a reset, another one has its id
            else:
                self.dearest_seconds += new.seconds or 0.0
        if len(self._since_export) < _MOST_FUNCTIONS:
            self._since_export.add((new.name, new.file, new.line))
        if new.name == STRICT_EXPORT:
            self._since_export.clear()
            before = self.strict_exports
            self.strict_exports = replace(
                before,
                compilations=before.compilations + 1,
                seconds=before.seconds + (new.seconds or 0.0),
            )
        self.varying.compilation(new)
        self.functions.fold(new)

    def _with_export(self, entry: Of) -> Of:
        """Whether the last strict export dropped what had been compiled of this function."""
        is_first = (entry.name, entry.file, entry.line) not in self._since_export
        if entry.again and is_first and self.strict_exports.compilations:
            return replace(entry, exported=True)
        return entry

    def _is_dearest(self, new: Compilation) -> bool:
        late = new.after_warm or new.in_a_row >= REPEATED_STEPS
        if not new.seconds or new.at_limit or not advice_for(new, after_warm=late):
            return False
        return self.dearest is None or new.seconds > (self.dearest.seconds or 0.0)

    def _break(self, new: GraphBreak) -> None:
        """A later line of a reason has its total count."""
        breaks = {graph_break.reason: graph_break for graph_break in self.breaks}
        if new.reason in breaks or len(breaks) < MOST_BREAKS:
            self.breaks = tuple({**breaks, new.reason: new}.values())

    def _bypass(self, cache: str, reason: str) -> None:
        bypasses = {(bypass.cache, bypass.reason): bypass for bypass in self.bypasses}
        before = bypasses.get((cache, reason), CacheBypass(cache=cache, reason=reason, count=0))
        if before.count or len(bypasses) < MOST_EVENTS:
            bypasses[cache, reason] = replace(before, count=before.count + 1)
            self.bypasses = tuple(bypasses.values())

    def _long_step(self, new: LongStep) -> None:
        """Add a long step: the longest of all comes first, even if it is one of the last."""
        longest = max((*self.long_steps[:1], new), key=lambda step: step.seconds)
        self.long_steps = longest, *(*self.long_steps[1:], new)[-MOST_LONG_STEPS:]
        first, count = self._in_a_row or (new, 0)
        if new.step != first.step + count:
            first, count = new, 0
        self._in_a_row = first, count + 1
        if count + 1 == SLOWED:
            self.slowed = first
