"""Figures of a rank's compiler.

Units and "not known" are those of :mod:`figures`.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from warmwatch_monitor.model.journal import (
    OF_GRAPHS,
    Compilation,
    CudagraphSkip,
    Fallback,
    FunctionCost,
    GraphBreak,
    LongStep,
    VaryingDim,
)


class Counted(Struct, frozen=True, kw_only=True):
    """Progress of an activity: ``done`` of ``total`` items; ``of`` is one of PROGRESS."""

    of: str
    done: int
    total: int


class OpenActivity(Struct, frozen=True, kw_only=True):
    """Compile activity in progress; of a rank that has ended, the one that its end cut off.

    Attributes:
        began_at: its begin. seconds: since then. phase: one of PHASES; ``None`` if not reported.
        counted: its progress, if PyTorch counts the items of the current phase.
    """

    began_at: float
    seconds: float
    phase: str | None = None
    counted: Counted | None = None


class Compile(Struct, frozen=True, kw_only=True):
    """Activity of the rank's compiler so far. A count is ``None`` if this torch has none.

    Attributes:
        begun: whether any activity has begun, ended or not. open: the one in progress.
        last_end_at: when the last one ended.
        phase_seconds: exclusive time of each of PHASES, the activity in progress included;
        seconds: all of it.
        compilations: by kind, of KINDS those that its torch counts. recompiles: by category.
        graphs, graph_breaks, failures: as Dynamo counts them.
        recompiles_after_warm: those of a rank that had been warm.
        fallbacks: frames that hit the recompile limit; their new inputs run eagerly.
        cache_hits, cache_misses: by cache.
        graphs_before: graphs that Dynamo had captured before the agent attached.
        precompiled: ahead-of-time artifacts in use, of PRECOMPILED; ``None``: not known.
        wrappers: how many functions and modules the user handed to ``torch.compile``.
        disabled: which of DISABLED turns compilation off; ``None`` if it is on or this is not
        known. cudagraph_skips: how often CUDA graphs were requested and skipped.
        new_instances: first compilations of a module whose class was compiled for another before.
        disabled_since_step: the last step before ``disabled`` changed. eager_calls, refused_calls:
        calls of compiled functions that a stance ran eagerly or refused; ``*_since``: the step of
        the first one. uncompiled_evaluations: evaluations in which no compiled function was called.
        background_since: begin of the oldest compilation in progress on a thread that the steps do
        not wait for; ``None`` where there is none. background_seconds: time of all such
        compilations, added up over threads; background_for_seconds: since ``background_since``.
    """

    begun: bool = False
    open: OpenActivity | None = None
    last_end_at: float | None = None
    seconds: float = 0.0
    phase_seconds: Mapping[str, float] = field(default_factory=dict)
    compilations: Mapping[str, int] | None = None
    recompiles: Mapping[str, int] | None = None
    graphs: int | None = None
    graph_breaks: int | None = None
    failures: int | None = None
    recompiles_after_warm: int | None = None
    fallbacks: int | None = None
    cache_hits: Mapping[str, int] | None = None
    cache_misses: Mapping[str, int] | None = None
    graphs_before: int | None = None
    precompiled: tuple[str, ...] | None = None
    wrappers: int | None = None
    disabled: str | None = None
    cudagraph_skips: int | None = None
    new_instances: int | None = None
    disabled_since_step: int | None = None
    eager_calls: int | None = None
    eager_calls_since: int | None = None
    refused_calls: int | None = None
    refused_calls_since: int | None = None
    uncompiled_evaluations: int | None = None
    background_since: float | None = None
    background_seconds: float = 0.0
    background_for_seconds: float | None = None

    @property
    def graphs_compiled(self) -> int | None:
        """Compilations of graphs; excludes autotuning of kernels and recording of CUDA graphs."""
        counts = self.compilations
        return None if counts is None else sum(counts.get(kind, 0) for kind in OF_GRAPHS)

    @property
    def recompiles_total(self) -> int | None:
        return None if self.recompiles is None else sum(self.recompiles.values())


class Underway(Struct, frozen=True, kw_only=True):
    """A compilation in progress, or the one that reopened a warm-up.

    Attributes:
        kind: one of ``record.KINDS``; ``None`` where that is not known yet.
        name, file, line: the function. backward: it is that function's backward.
        caller, dynamic: see ``model.Compilation``.
        reason, category: why it is recompiled, in PyTorch's words; a backward has those of its
        forward was; of a first compile ``None``.
    """

    kind: str | None = None
    name: str | None = None
    file: str | None = None
    line: int | None = None
    backward: bool = False
    reason: str | None = None
    category: str | None = None
    caller: str | None = None
    dynamic: bool | None = None


class Log(Struct, frozen=True, kw_only=True):
    """Single compiler events from the journal; empty if no journal was read.

    Attributes:
        compilations, fallbacks: the last ones, oldest first. skips: of CUDA graphs,
        except those that a compilation reports.
        breaks: reasons of graph breaks.
        functions: the cost of each function, most expensive first; ``None`` if no journal was read.
        underway: what the activity in progress compiles; ``None`` if there is none or nothing
        of it is known yet.
        reopened_by: the last compilation of the open warm-up that has a reason.
        varying: dimensions that caused recompiles.
        long_steps: those that took far longer than usual and did not compile: the last ones and
        the longest, oldest first.
    """

    compilations: tuple[Compilation, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()
    skips: tuple[CudagraphSkip, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    functions: tuple[FunctionCost, ...] | None = None
    underway: Underway | None = None
    reopened_by: Compilation | None = None
    varying: tuple[VaryingDim, ...] = ()
    long_steps: tuple[LongStep, ...] = ()
