"""The baseline file: JSON, with ranges of ranks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from msgspec import DecodeError, Meta, Struct, field
from msgspec.json import decode, encode
from msgspec.json import format as indented
from msgspec.structs import replace

from warmwatch_monitor.base.errors import UsageError
from warmwatch_monitor.commands.check.measured import COUNTS, Counts, MeasuredRun
from warmwatch_monitor.output.amounts import consecutive, spans

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


class BaselineRun(Struct, frozen=True, kw_only=True):
    """The baseline of a run.

    ``warmup_seconds`` is set only if the run was measured in the same job.
    """

    ranks: Mapping[int, BaselineRank]
    warmup_ratio: float | None = None
    warmup_seconds: float | None = None


class Baseline(Struct, frozen=True, kw_only=True):
    """The accepted numbers.

    Attributes:
        tolerance: by how much of itself the warm-up may grow. ignore: numbers that may grow.
        torch: version of the one that it was measured with.
    """

    runs: Mapping[str, BaselineRun] = field(default_factory=dict)
    tolerance: float = TOLERANCE
    ignore: tuple[str, ...] = ()
    torch: str | None = None


def of(runs: Sequence[MeasuredRun], before: Baseline | None = None) -> Baseline:
    """A baseline with the measured numbers and the settings of the baseline ``before``."""
    settings = before or Baseline()
    held = {run.run: _held(run) for run in runs}
    if RATIO in settings.ignore:  # it differs from run to run
        held = {name: replace(run, warmup_ratio=None) for name, run in held.items()}
    return Baseline(
        runs=held,
        tolerance=settings.tolerance,
        ignore=settings.ignore,
        torch=next((run.torch for run in runs if run.torch), None),
    )


def _held(run: MeasuredRun) -> BaselineRun:
    return BaselineRun(
        ranks={
            rank.rank: BaselineRank(counts=rank.counts, functions=rank.functions)
            for rank in run.ranks
        },
        warmup_ratio=run.warmup_ratio,
        warmup_seconds=run.warmup_seconds,
    )


def with_seconds(file: Baseline, here: Baseline) -> Baseline:
    """A file's baseline, with the warm-up of what was measured ``here``, in the same job.

    Runs are matched by name; if each side has one run, their names do not matter.
    """
    alone = len(file.runs) == len(here.runs) == 1
    runs = {}
    for name, run in file.runs.items():
        measured = next(iter(here.runs.values())) if alone else here.runs.get(name)
        seconds = None if measured is None else measured.warmup_seconds
        runs[name] = replace(run, warmup_seconds=seconds)
    return replace(file, runs=runs)


class _FileRun(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A run in the file; ``ranks`` by their range, such as ``0-3``."""

    warmup_ratio: Amount | None = None
    ranks: dict[str, BaselineRank] = {}


class _File(Struct, kw_only=True, forbid_unknown_fields=True):
    """The file."""

    schema: int = SCHEMA
    torch: str | None = None
    tolerance: Amount = TOLERANCE
    ignore: tuple[str, ...] = ()
    runs: dict[str, _FileRun] = {}


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
        file = decode(text, type=_File)
    except (DecodeError, RecursionError) as error:  # thousands of brackets
        raise UsageError(f"it is no baseline: {error}") from None
    if not {*file.ignore} <= {*COUNTS, RATIO}:
        raise UsageError(f"ignore takes a list of {', '.join((*COUNTS, RATIO))}")
    left = _MOST
    runs = {}
    for name, run in file.runs.items():
        ranks: dict[int, BaselineRank] = {}
        for key, held in run.ranks.items():
            try:
                ranks.update(dict.fromkeys(numbers(key), held))
            except ValueError:
                raise UsageError(f"run {name} has ranks {key!r}: write 0, 0-3 or 0-3,6") from None
            if len(ranks) > left:  # before the next range takes its memory
                raise UsageError(f"it has more than {_MOST:,} ranks")
        left -= len(ranks)
        runs[name] = BaselineRun(ranks=ranks, warmup_ratio=run.warmup_ratio)
    return Baseline(runs=runs, tolerance=file.tolerance, ignore=file.ignore, torch=file.torch)


def written(baseline: Baseline) -> str:
    """The text of its file, in a stable order."""
    file = _File(
        torch=baseline.torch,
        tolerance=baseline.tolerance,
        ignore=baseline.ignore,
        runs={name: _file_run(run) for name, run in sorted(baseline.runs.items())},
    )
    return indented(encode(file), indent=1).decode() + "\n"


def _file_run(run: BaselineRun) -> _FileRun:
    """Ranks with equal numbers share an entry."""
    groups: list[tuple[BaselineRank, list[int]]] = []
    for rank, held in sorted(run.ranks.items()):
        ranks = next((ranks for baseline_rank, ranks in groups if baseline_rank == held), None)
        if ranks is None:
            groups.append((held, [rank]))
        else:
            ranks.append(rank)
    ratio = run.warmup_ratio
    return _FileRun(
        warmup_ratio=None if ratio is None else float(f"{ratio:.3g}"),
        ranks={named(ranks): held for held, ranks in groups},
    )
