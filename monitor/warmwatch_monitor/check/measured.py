"""What runs compiled, as the numbers of a baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

from msgspec import Meta, Struct

from warmwatch_monitor.model import FunctionCost, RankView, RunView
from warmwatch_monitor.model.records import NOTHING, CompileCauses

# Counts of a rank, in the order of the baseline file and of messages.
COUNTS = (
    "graphs",
    "graph_breaks",
    "recompiles",
    "recompiles_after_warm",
    "fallbacks",
    "failures",
    "kernels",
    "cudagraph_skips",
)
# The hook (see the agent's ``hooks``) that a count needs. Without it the count is unknown, not 0.
_NEEDS = {
    "fallbacks": "recompile_limit",
    "kernels": "kernels",
}
_USUALLY_NEEDS = "compilations"
# Seconds. In five runs of one training with steps of 0.3 ms the warm-up took 71 to 489 steps; with
# steps of 20 ms it took 67 to 99.
SHORT_STEP = 0.005

Count = Annotated[int, Meta(ge=0)]


class Share(Struct, frozen=True, kw_only=True):
    """The part of a rank's counts that belongs to one function; ``None`` is unknown."""

    compilations: Count = 0
    recompiles: Count = 0
    kernels: Count | None = None


class MeasuredRank(Struct, frozen=True, kw_only=True):
    """The counts of one rank.

    Attributes:
        counts: by COUNTS, without those that this PyTorch version does not report.
        functions: by ``name (file)``.
        causes: causes from its journal, with their reasons.
        errors: number of internal errors of the agent.
        dropped: number of lost journal lines; if there are any, ``kernels`` is unknown.
    """

    rank: int
    counts: Mapping[str, int]
    functions: Mapping[str, Share]
    causes: CompileCauses = NOTHING
    errors: int = 0
    dropped: int = 0


class MeasuredRun(Struct, frozen=True, kw_only=True):
    """The numbers of one run.

    Attributes:
        view: the run in the Snapshot.
        warmup_seconds: longest first warm-up of a rank; ``None`` if a rank never became warm.
        warmup_ratio: the same in clean steps; also ``None`` if steps are short.
        short_step: the shortest step, if steps are too short for the ratio.
        torch: version of PyTorch.
    """

    run: str
    ranks: tuple[MeasuredRank, ...]
    view: RunView
    warmup_seconds: float | None = None
    warmup_ratio: float | None = None
    short_step: float | None = None
    torch: str | None = None

    @property
    def compiled(self) -> bool:
        return any(rank.figures.compile.begun for rank in self.view.ranks)


def measured(
    runs: Iterable[RunView], causes: Mapping[str, CompileCauses]
) -> tuple[MeasuredRun, ...]:
    """The numbers of each run. ``causes``: causes by record folder."""
    return tuple(_run(one, causes) for one in runs)


def _run(view: RunView, causes: Mapping[str, CompileCauses]) -> MeasuredRun:
    seconds = [_warmup(rank) for rank in view.ranks]
    ratios = [_ratio(rank) for rank in view.ranks]
    short = [step for rank in view.ranks if (step := _step(rank)) and step < SHORT_STEP]
    return MeasuredRun(
        run=view.run,
        ranks=tuple(_rank(one, causes.get(one.record.folder, NOTHING)) for one in view.ranks),
        view=view,
        warmup_seconds=_longest(seconds),
        warmup_ratio=None if short else _longest(ratios),
        short_step=min(short, default=None),
        torch=view.who.torch,
    )


def _longest(of: list[float | None]) -> float | None:
    known = [one for one in of if one is not None]
    return max(known) if len(known) == len(of) else None


def _warmup(view: RankView) -> float | None:
    first = view.figures.warmups.first
    return None if first is None else first.seconds


def _step(view: RankView) -> float | None:
    return view.figures.steps.clean.typical


def _ratio(view: RankView) -> float | None:
    seconds, step = _warmup(view), _step(view)
    return seconds / step if seconds is not None and step else None


def _rank(view: RankView, causes: CompileCauses) -> MeasuredRank:
    compile, missing = view.figures.compile, view.figures.agent.missing
    functions = view.figures.log.functions or ()
    dropped = view.figures.agent.lines_dropped or 0
    found = {
        "graphs": compile.graphs,
        "graph_breaks": compile.graph_breaks,
        "recompiles": compile.recompiles_total,
        "recompiles_after_warm": compile.recompiles_after_warm,
        "fallbacks": compile.fallbacks,
        "failures": compile.failures,
        "kernels": None if dropped else sum(one.cost.kernels or 0 for one in functions),
        "cudagraph_skips": compile.cudagraph_skips,
    }
    return MeasuredRank(
        rank=view.rank,
        counts={
            name: value
            for name, value in found.items()
            if value is not None and _NEEDS.get(name, _USUALLY_NEEDS) not in missing
        },
        functions=_shares(functions, causes),
        causes=causes,
        errors=view.figures.agent.errors or 0,
        dropped=dropped,
    )


def _shares(functions: Iterable[FunctionCost], causes: CompileCauses) -> dict[str, Share]:
    """Counts by function, without its line, which changes with every edit above it."""
    shares: dict[str, Share] = {}
    for one in functions:
        if one.name is None:
            continue
        name = called(one.name, one.file)
        before = shares.get(name, Share())
        kernels = [n for n in (before.kernels, one.cost.kernels) if n is not None]
        shares[name] = Share(
            compilations=before.compilations + one.compilations,
            recompiles=sum(called(r.name, r.file) == name for r in causes.recompiles),
            kernels=sum(kernels) if kernels else None,
        )
    return dict(sorted(shares.items()))


def called(name: str | None, file: str | None) -> str:
    """``forward (model.py)``."""
    return f"{name} ({file})" if file else f"{name}"
