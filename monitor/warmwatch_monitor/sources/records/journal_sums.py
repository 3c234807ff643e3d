"""What the lines of a journal add up to, line by line, in bounded memory."""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared.advice import advice_for
from warmwatch.shared.values import STRICT_EXPORT
from warmwatch.shared.verdict import REPEATED_STEPS
from warmwatch_monitor.model import BEGIN, CacheBypass, FunctionCost, Place
from warmwatch_monitor.model.journal import (
    MOST_METHODS,
    AgentError,
    Beginning,
    CacheLookup,
    Compilation,
    CompileCall,
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
from warmwatch_monitor.sources.records.function_costs import Functions
from warmwatch_monitor.sources.records.varying_dims import Varying

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
                self.beginning = self._with_export(line)
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
