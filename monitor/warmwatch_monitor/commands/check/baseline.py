"""What runs compiled, as the numbers of a baseline, and its file: JSON, with ranges of ranks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from msgspec import DecodeError, Meta, Struct, field
from msgspec.json import decode, encode
from msgspec.json import format as indented
from msgspec.structs import replace

from warmwatch.shared.phrases import without_line
from warmwatch_monitor.base.errors import UsageError
from warmwatch_monitor.model.journal import NOTHING, ParsedJournal
from warmwatch_monitor.model.records import FunctionCost
from warmwatch_monitor.model.snapshot import RankView, RunView
from warmwatch_monitor.output.amounts import consecutive, spans

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
# Seconds. In five runs of one training with steps of 0.3 ms the warm-up took 71 to 489 steps; with
# steps of 20 ms it took 67 to 99.
SHORT_STEP = 0.005

Counts = Mapping[str, Annotated[int, Meta(ge=0)]]


class MeasuredRank(Struct, frozen=True, kw_only=True):
    """The counts of one rank.

    Attributes:
        counts: by COUNTS, without those that this PyTorch version does not report.
        functions: by ``name (file)``: ``compilations``, ``recompiles`` unless there were none, and
            ``kernels`` if they are known.
        causes: causes from its journal, with their reasons.
        errors: number of internal errors of the agent.
        dropped: number of lost journal lines; if there are any, ``kernels`` is unknown.
    """

    rank: int
    counts: Counts
    functions: Mapping[str, Counts]
    causes: ParsedJournal = NOTHING
    errors: int = 0
    dropped: int = 0


class MeasuredRun(Struct, frozen=True, kw_only=True):
    """The numbers of one run.

    Attributes:
        view: the run in the Snapshot.
        warmup_seconds: longest first warm-up of a rank; ``None`` if a rank never became warm.
        warmup_ratio: the same in clean steps; also ``None`` if steps are short.
        short_step: the shortest step, if steps are too short for the ratio. unsettled: number of
        clean steps of the ratio, if they are too few or still changed.
        torch: version of PyTorch.
    """

    run: str
    ranks: tuple[MeasuredRank, ...]
    view: RunView
    warmup_seconds: float | None = None
    warmup_ratio: float | None = None
    short_step: float | None = None
    unsettled: int | None = None
    torch: str | None = None

    @property
    def compiled(self) -> bool:
        return any(rank.figures.compile.begun for rank in self.view.ranks)


def measured(
    runs: Iterable[RunView], causes: Mapping[str, ParsedJournal]
) -> tuple[MeasuredRun, ...]:
    """The numbers of each run. ``causes``: causes by record folder."""
    return tuple(_run(run, causes) for run in runs)


def _run(view: RunView, causes: Mapping[str, ParsedJournal]) -> MeasuredRun:
    seconds = [_warmup(rank) for rank in view.ranks]
    ratios = [_ratio(rank) for rank in view.ranks]
    short = [step for rank in view.ranks if (step := _step(rank)) and step < SHORT_STEP]
    settled = all(rank.figures.steps.settled for rank in view.ranks)
    count = min((rank.figures.steps.clean.count or 0 for rank in view.ranks), default=0)
    return MeasuredRun(
        run=view.run,
        ranks=tuple(
            _rank(rank_view, causes.get(rank_view.record.folder, NOTHING))
            for rank_view in view.ranks
        ),
        view=view,
        warmup_seconds=_longest(seconds),
        warmup_ratio=None if short else _longest(ratios),
        short_step=min(short, default=None),
        unsettled=None if settled else count,
        torch=view.who.torch,
    )


def _longest(numbers: list[float | None]) -> float | None:
    values = [number for number in numbers if number is not None]
    return max(values) if len(values) == len(numbers) else None


def _warmup(view: RankView) -> float | None:
    first = view.figures.warmups.first
    return None if first is None else first.seconds


def _step(view: RankView) -> float | None:
    return view.figures.steps.clean.typical


def _ratio(view: RankView) -> float | None:
    seconds, step = _warmup(view), _step(view)
    return seconds / step if seconds is not None and step else None


def _rank(view: RankView, causes: ParsedJournal) -> MeasuredRank:
    compile = view.figures.compile
    functions = view.figures.log.functions or ()
    dropped = view.figures.agent.lines_dropped or 0
    counts = {
        "graphs": compile.graphs,
        "graph_breaks": compile.graph_breaks,
        "recompiles": compile.recompiles,
        "recompiles_after_warm": compile.recompiles_after_warm,
        "fallbacks": compile.fallbacks,
        "failures": compile.failures,
        "kernels": None
        if dropped or "kernels" in view.figures.agent.missing
        else sum(function.cost.kernels or 0 for function in functions),
        "cudagraph_skips": compile.cudagraph_skips,
    }
    return MeasuredRank(
        rank=view.rank,
        counts={name: value for name, value in counts.items() if value is not None},
        functions=_by_function(functions, causes),
        causes=causes,
        errors=view.figures.agent.errors or 0,
        dropped=dropped,
    )


def _by_function(functions: Iterable[FunctionCost], causes: ParsedJournal) -> dict[str, Counts]:
    """Counts by function, without its line, which changes with every edit above it."""
    held: dict[str, Counter[str]] = {}
    for function in functions:
        if function.name is None:
            continue
        counts = held.setdefault(called(function.name, function.file), Counter())
        counts["compilations"] += function.compilations
        if function.cost.kernels is not None:
            counts["kernels"] += function.cost.kernels
    for recompile in causes.recompiles:
        name = called(recompile.name, recompile.file)
        if name in held and not recompile.at_limit:
            held[name]["recompiles"] += 1
    return dict(sorted(held.items()))


def called(name: str | None, file: str | None) -> str:
    """``forward (model.py)``."""
    shown = name and without_line(name)
    return f"{shown} ({file})" if file else f"{shown}"


_PART = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
_MOST = 100_000  # ranks of a file


def named(ranks: Iterable[int]) -> str:
    """Ranks as text: ``0-3,6``."""
    return spans(consecutive(ranks))


def numbers(name: str) -> list[int]:
    """Parse ``0-3,6``. Raises ValueError if it is invalid."""
    numbers: list[int] = []
    for part in name.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise ValueError(name)
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(name)
        if len(numbers) + last - first >= _MOST:
            raise UsageError(f"it has more than {_MOST:,} ranks")
        numbers += range(first, last + 1)
    return numbers


SCHEMA = 1
RATIO = "warmup_ratio"
TOLERANCE = 1.0
Amount = Annotated[float, Meta(ge=0, lt=1e12)]


class BaselineRank(Struct, frozen=True, kw_only=True):
    """The baseline's numbers of a rank."""

    counts: Counts = field(default_factory=dict)
    functions: Mapping[str, Counts] = field(default_factory=dict)


class BaselineRun(
    Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The baseline of a run.

    ``ranks``: by their range, such as ``0-3``; ranks with equal numbers share an entry.
    """

    warmup_ratio: Amount | None = None
    ranks: Mapping[str, BaselineRank] = field(default_factory=dict)


class Baseline(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The accepted numbers: the file.

    Attributes:
        torch: version of the one that it was measured with.
        tolerance: by how much of itself the warm-up may grow. ignore: numbers that may grow.
    """

    schema: int = SCHEMA
    torch: str | None = None
    tolerance: Amount = TOLERANCE
    ignore: tuple[str, ...] = ()
    runs: Mapping[str, BaselineRun] = field(default_factory=dict)


def of(runs: Sequence[MeasuredRun], before: Baseline | None = None) -> Baseline:
    """A baseline with the measured numbers and the settings of the baseline ``before``."""
    settings = before or Baseline()
    held = {run.run: _held(run) for run in sorted(runs, key=lambda run: run.run)}
    if RATIO in settings.ignore:  # it differs from run to run
        held = {name: replace(run, warmup_ratio=None) for name, run in held.items()}
    torch = next((run.torch for run in runs if run.torch), None)
    return replace(settings, runs=held, torch=torch)


def _held(run: MeasuredRun) -> BaselineRun:
    groups: list[tuple[BaselineRank, list[int]]] = []
    for rank in sorted(run.ranks, key=lambda rank: rank.rank):
        held = BaselineRank(counts=rank.counts, functions=rank.functions)
        ranks = next((ranks for baseline_rank, ranks in groups if baseline_rank == held), None)
        if ranks is None:
            groups.append((held, [rank.rank]))
        else:
            ranks.append(rank.rank)
    ratio = run.warmup_ratio
    return BaselineRun(
        warmup_ratio=None if ratio is None else float(f"{ratio:.3g}"),
        ranks={named(ranks): held for held, ranks in groups},
    )


class _Head(Struct):
    schema: Any = None


def parsed(text: str) -> Baseline:
    """Parse a baseline.

    Raises:
        UsageError: it is invalid; the message names the place.
    """
    try:
        if (schema := decode(text, type=_Head).schema) != SCHEMA:
            raise UsageError(
                f"its schema is {schema!r}, and this release reads {SCHEMA}: "
                "remove it, and write it again with --update"
            )
        file = decode(text, type=Baseline)
    except (DecodeError, RecursionError) as error:  # thousands of brackets
        raise UsageError(f"it is no baseline: {error}") from None
    if not {*file.ignore} <= {*COUNTS, RATIO}:
        raise UsageError(f"ignore takes a list of {', '.join((*COUNTS, RATIO))}")
    left = _MOST
    for name, run in file.runs.items():
        left -= len(ranks_of(name, run, left))
    return file


def ranks_of(name: str, run: BaselineRun, most: int = _MOST) -> dict[int, BaselineRank]:
    """Each rank of a run. Raises UsageError if there are more than ``most``."""
    ranks: dict[int, BaselineRank] = {}
    for key, held in run.ranks.items():
        try:
            ranks.update(dict.fromkeys(numbers(key), held))
        except ValueError:
            raise UsageError(f"run {name} has ranks {key!r}: write 0, 0-3 or 0-3,6") from None
        if len(ranks) > most:  # before the next range takes its memory
            raise UsageError(f"it has more than {_MOST:,} ranks")
    return ranks


def written(baseline: Baseline) -> str:
    """The text of its file, in a stable order."""
    return indented(encode(baseline), indent=1).decode() + "\n"
