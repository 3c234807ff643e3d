"""What a record's journal reports: compilations, recompiles, graph breaks, fallbacks, long
steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field

FEWEST_STEPS = 10  # clean steps whose mean says something

# What counts as a compilation: one record of PyTorch's for one graph. A kernel's autotuning and a
# CUDA graph's recording are records too, but of no graph of their own.
OF_GRAPHS = ("forward", "backward", "other")
_BEGIN = ("forward", "other")


class Recorded(Protocol):
    """One record of PyTorch's, wherever it was read from."""

    @property
    def id(self) -> str | None: ...
    @property
    def kind(self) -> str: ...


def families(records: Sequence[Recorded]) -> list[list[int]]:
    """Positions in ``records`` of each compilation, with those of all that it brought.

    It brings its backward, and what is tuned or recorded at its first run: they are recorded later,
    under its id, until a forward has that id again (after ``torch._dynamo.reset()``). The cost of a
    recompile is the sum over its family, in every view.
    """
    found: list[list[int]] = []
    by_id: dict[str, list[int]] = {}
    for at, one in enumerate(records):
        known = by_id.get(one.id) if one.id else None
        again = (
            one.kind in _BEGIN
            and known
            and any(records[k].kind in (one.kind, "backward") for k in known)
        )
        if known is None or again:
            found.append([at])
            if one.id:
                by_id[one.id] = found[-1]
        else:
            known.append(at)
    return found


class Cost(Struct, frozen=True, kw_only=True):
    """What a compilation took, or all of one function; ``None`` where PyTorch does not say.

    Attributes:
        phase_seconds: exclusive time of each of ``record.PHASES`` that took any.
        ops: operators in its graph. guards: that decide whether it fits; guard_seconds: how long
        one look at them takes. kernels: that were compiled, slowest: those that took longest, with
        their seconds. allocated, reserved: bytes of CUDA's allocator when it had ended.
    """

    phase_seconds: Mapping[str, float] = field(default_factory=dict)
    ops: int | None = None
    guards: int | None = None
    guard_seconds: float | None = None
    kernels: int | None = None
    slowest: tuple[tuple[str, float], ...] = ()
    allocated: int | None = None
    reserved: int | None = None


class FunctionCost(Struct, frozen=True, kw_only=True):
    """What all compilations of one function took, its backwards among them.

    Attributes:
        name, file, line: the function; all ``None`` for what belongs to no function that is known.
        others: how many functions this is the sum of, each too cheap to be kept by itself; 0 of a
        function. compilations: records of OF_GRAPHS. failures: how many. seconds: of all records.
        cache_hits, cache_misses: of those that asked a cache and say so. caller: of the last one;
        see Compilation.
        cost: phases and kernels together; the rest is that of the last one that told.
    """

    name: str | None = None
    file: str | None = None
    line: int | None = None
    others: int = 0
    compilations: int = 0
    failures: int = 0
    seconds: float = 0.0
    cache_hits: int = 0
    cache_misses: int = 0
    cost: Cost = Cost()
    caller: str | None = None


class Compilation(Struct, frozen=True, kw_only=True):
    """One compilation, from a record's journal.

    Attributes:
        id: PyTorch's compile id, such as ``0/1``, where it gave one. kind: one of ``record.KINDS``.
        at_ns: when it ended. seconds: how long it took, ``None`` where PyTorch does not say.
        reason: why it was compiled again, in PyTorch's words. category: one of
        ``record.CATEGORIES``, ``None`` for a first compile.
        name: the function compiled. file, line: where it is, of the file the base name.
        code: hash of the function's code. dynamic: all sizes are dynamic, or none; ``None``: those
        that have changed. caller: of library code the line of the user's that called it, as
        ``train.py:31``; empty where none did; ``None`` of the user's own.
        cache: ``hit``, ``miss``, or ``None`` where none was asked.
        failure: the exception's type where it failed. failure_reason: why, in PyTorch's words.
        instance: which module of its class it is, where code of that class had been compiled for
        another before: then this is a first compilation and no recompile.
        cudagraph_skip: why CUDA graphs were left out of it, in PyTorch's words.
        after_warm: the rank had been warm before. What compiles in the first warm-up is part of it.
        evaluating: it was made within an evaluation, so between steps.
        cost: what else is known of what it took.
    """

    id: str | None
    kind: str
    at_ns: int
    seconds: float | None = None
    reason: str | None = None
    category: str | None = None
    name: str | None = None
    file: str | None = None
    line: int | None = None
    code: str | None = None
    caller: str | None = None
    dynamic: bool | None = None
    cache: str | None = None
    failure: str | None = None
    failure_reason: str | None = None
    instance: int | None = None
    cudagraph_skip: str | None = None
    after_warm: bool = False
    evaluating: bool = False
    cost: Cost | None = None


class Beginning(Struct, frozen=True, kw_only=True):
    """The begin of compile activity, from a journal: when, and by which event, in PyTorch's words.

    Attributes:
        kind: of another compiler than PyTorch's; what it compiles is known at once.
        name, file, line: what is compiled, of PyTorch's where it is a function that Dynamo looks
        at. code: hash of that function's code. caller, dynamic: see Compilation.
    """

    at_ns: int
    what: str | None = None
    kind: str | None = None
    name: str | None = None
    file: str | None = None
    line: int | None = None
    code: str | None = None
    caller: str | None = None
    dynamic: bool | None = None


class Recompile(Struct, frozen=True, kw_only=True):
    """A recompile that begins, from a record's journal: what it is of, and why; see Compilation."""

    at_ns: int
    kind: str | None = None
    reason: str | None = None
    category: str | None = None
    name: str | None = None
    file: str | None = None
    line: int | None = None
    caller: str | None = None
    dynamic: bool | None = None


class VaryingDim(Struct, frozen=True, kw_only=True):
    """A dimension for which a function was compiled again, over all that was read of a journal.

    Attributes:
        tensor: the argument's name. dim: which of its dimensions; ``None`` of a number that the
        function was compiled for, one by one. name, file, line: the function.
        values: its sizes that were seen, in order; ``complete``: all of them were kept.
        lowest, highest: of all. count: recompiles. seconds: they took together, with their
        backwards; ``None`` where PyTorch does not say. timed: of how many it does.
        last_id: compile id of the last one.
        before_seconds: mean clean step before the first of them. since_ns, since_steps: clean steps
        after it, with whatever size they had.
    """

    tensor: str
    dim: int | None
    name: str | None = None
    file: str | None = None
    line: int | None = None
    values: tuple[int, ...] = ()
    complete: bool = True
    lowest: int | None = None
    highest: int | None = None
    count: int = 0
    seconds: float | None = None
    timed: int = 0
    last_id: str | None = None
    before_seconds: float | None = None
    since_ns: int = 0
    since_steps: int = 0


class GraphBreak(Struct, frozen=True, kw_only=True):
    """A reason for which Dynamo broke graphs, and how often so far.

    ``name``, ``file``, ``line``: where, of several places the last.
    """

    reason: str
    count: int
    name: str | None = None
    file: str | None = None
    line: int | None = None


class Fallback(Struct, frozen=True, kw_only=True):
    """A frame that hit the recompile limit, from a record's journal.

    Attributes:
        at_ns: when. step: how many steps there were; its new inputs run eagerly from then on.
        name, file, line: the function. id: of the compilation that PyTorch refused. limit: the
        limit that it hit, ``setting`` the config's name for it.
    """

    at_ns: int
    step: int
    name: str | None = None
    limit: int | None = None
    setting: str | None = None
    file: str | None = None
    line: int | None = None
    id: str | None = None


class CudagraphSkip(Struct, frozen=True, kw_only=True):
    """CUDA graphs left out as a graph ran, from a record's journal: no compilation has the reason.

    Attributes:
        at_ns: when. reason: PyTorch's words. name, file, line: of the user's, what makes it so.
    """

    at_ns: int
    reason: str
    name: str | None = None
    file: str | None = None
    line: int | None = None


class LongStep(Struct, frozen=True, kw_only=True):
    """A step without compile activity that came far later than usual, from a record's journal.

    Attributes:
        at_ns: when it ended. step: which one. seconds: since the one before, ``usual_seconds`` the
        median then. saving_seconds, evaluating_seconds, data_seconds: of it, what the training
        said it saved and evaluated, and waiting for batches; between_cells_seconds: in which no
        cell of its notebook ran.
        batches: that were handed out in it, ``batches_usual`` in a usual step; each ``None`` where
        there was none. left_out: how many others the journal left out before it.
    """

    at_ns: int
    step: int
    seconds: float
    usual_seconds: float
    saving_seconds: float = 0.0
    evaluating_seconds: float = 0.0
    between_cells_seconds: float = 0.0
    data_seconds: float | None = None
    batches: int | None = None
    batches_usual: float | None = None
    left_out: int = 0


class CompileCauses(Struct, frozen=True, kw_only=True):
    """All that one journal tells, oldest first.

    ``late``: those of the recompiles that came when the rank had been warm. ``skips``: of CUDA
    graphs, beside those of which a compilation tells.
    """

    compilations: tuple[Compilation, ...] = ()
    late: tuple[Compilation, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()
    skips: tuple[CudagraphSkip, ...] = ()

    @property
    def recompiles(self) -> tuple[Compilation, ...]:
        return tuple(one for one in self.compilations if one.category is not None)


NOTHING = CompileCauses()
