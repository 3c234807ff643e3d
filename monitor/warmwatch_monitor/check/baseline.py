"""The baseline file: TOML, read and written as text, with ranges of ranks."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct, ValidationError, convert, field
from msgspec.structs import replace

from warmwatch_monitor.check.measured import COUNTS, Count, MeasuredRun, Share
from warmwatch_monitor.errors import UsageError
from warmwatch_monitor.output.amounts import consecutive, spans

T = TypeVar("T")

_PART = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
_MOST = 100_000  # ranks of a file


def named(ranks: Iterable[int]) -> str:
    """Ranks as text: ``0-3,6``."""
    return spans(consecutive(ranks))


def numbers(name: str) -> list[int]:
    """Parse ``0-3,6``. Raises ValueError if it is invalid."""
    found: list[int] = []
    for part in name.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise ValueError(name)
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(name)
        if len(found) + last - first >= _MOST:
            raise UsageError(f"it has more than {_MOST:,} ranks")
        found += range(first, last + 1)
    return found


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SCHEMA = 1
RATIO = "warmup_ratio"
TOLERANCE = 1.0
_SHARES = ("compilations", "recompiles", "kernels")


class BaselineRank(Struct, frozen=True, kw_only=True):
    """The baseline's numbers of a rank."""

    counts: Mapping[str, int]
    functions: Mapping[str, Share]


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
    held = {one.run: _held(one) for one in runs}
    if RATIO in settings.ignore:  # it differs from run to run
        held = {name: replace(one, warmup_ratio=None) for name, one in held.items()}
    return Baseline(
        runs=held,
        tolerance=settings.tolerance,
        ignore=settings.ignore,
        torch=next((one.torch for one in runs if one.torch), None),
    )


def _held(run: MeasuredRun) -> BaselineRun:
    return BaselineRun(
        ranks={
            one.rank: BaselineRank(counts=one.counts, functions=one.functions) for one in run.ranks
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


# Reading.


def parsed(text: str) -> Baseline:
    """Parse a baseline.

    Raises:
        UsageError: it is invalid; the message names the place.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"it is not TOML: {error}") from None
    if data.get("schema") != SCHEMA:
        raise UsageError(
            f"its schema is {data.get('schema')!r}, and this release reads {SCHEMA}: "
            "remove it, and write it again with --update"
        )
    runs: dict[str, BaselineRun] = {}
    for name, one in _as(_Tables, data, "runs", "it").items():
        runs[name] = _run(name, one, sum(len(run.ranks) for run in runs.values()))
    return Baseline(
        runs=runs,
        tolerance=_number(data, "tolerance", "it", TOLERANCE),
        ignore=_names(data.get("ignore", [])),
        torch=data["torch"] if isinstance(data.get("torch"), str) else None,
    )


def _names(data: Any) -> tuple[str, ...]:
    if not isinstance(data, list) or not all(one in (*COUNTS, RATIO) for one in data):
        raise UsageError(f"ignore takes a list of {', '.join((*COUNTS, RATIO))}")
    return tuple(data)


def _run(name: str, data: Mapping[str, Any], others: int) -> BaselineRun:
    """``others``: how many ranks the runs before it have."""
    where = f"runs.{name}"
    ranks: dict[int, BaselineRank] = {}
    for key, one in _as(_Tables, data, "ranks", where).items():
        try:
            of_these = numbers(key)
        except ValueError:
            raise UsageError(f"{where}.ranks has {key!r}: write 0, 0-3 or 0-3,6") from None
        ranks.update(dict.fromkeys(of_these, _rank(one, f"{where}.ranks.{key}")))
        if others + len(ranks) > _MOST:
            raise UsageError(f"it has more than {_MOST:,} ranks")
    return BaselineRun(ranks=ranks, warmup_ratio=_number(data, RATIO, where, None))


def _rank(data: Mapping[str, Any], where: str) -> BaselineRank:
    return BaselineRank(
        counts={name: _as(Count, data, name, where) for name in COUNTS if name in data},
        functions=_as(dict[str, Share], data, "functions", where),
    )


_Tables = dict[str, dict[str, Any]]


def _as(type: type[T], data: Mapping[str, Any], key: str, where: str) -> T:
    """The table ``key`` of ``data``, empty if it is absent. Raises UsageError."""
    try:
        return convert(data.get(key, {}), type)
    except ValidationError as error:
        raise UsageError(f"{where}: {key}: {error}") from None


def _number(data: Mapping[str, Any], name: str, where: str, default: Any) -> Any:
    value = data.get(name, default)
    if value is default:
        return default
    if type(value) not in (int, float) or not 0 <= value < 1e12:
        raise UsageError(f"{where}: {name} is no number from 0 on: {value!r}")
    return float(value)


# Writing.

_HEAD = """\
# What this training compiles: the baseline of `warmwatch check`. Review it like code.
# It is written by `warmwatch check --baseline FILE --update -- CMD`, which keeps `tolerance` and
# `ignore` and no comments; a number that is taken out is not compared.
"""


def written(baseline: Baseline) -> str:
    """The text of its file."""
    lines = [_HEAD.rstrip(), f"schema = {SCHEMA}"]
    if baseline.torch:
        lines.append(f"torch = {_text(baseline.torch)}")
    lines += [
        f"tolerance = {baseline.tolerance:g}  # how much {RATIO} may grow: 1 is as much again",
        f"ignore = {json.dumps(list(baseline.ignore))}  # which of the numbers may grow",
    ]
    for name, run in sorted(baseline.runs.items()):
        lines += _run_lines(f"runs.{_key(name)}", run)
    return "\n".join(lines) + "\n"


def _run_lines(table: str, run: BaselineRun) -> Iterable[str]:
    if run.warmup_ratio is not None:
        yield ""
        yield f"[{table}]"
        ratio = f"{float(f'{run.warmup_ratio:.3g}'):g}"
        yield f"{RATIO} = {ratio}  # the first warm-up in steady steps, of the slowest rank"
    groups: list[tuple[BaselineRank, list[int]]] = []
    for rank, held in sorted(run.ranks.items()):
        for one, ranks in groups:
            if one == held:
                ranks.append(rank)
                break
        else:
            groups.append((held, [rank]))
    for held, ranks in groups:
        yield from _rank_lines(f"{table}.ranks.{_key(named(ranks))}", held)


def _rank_lines(table: str, rank: BaselineRank) -> Iterable[str]:
    yield ""
    yield f"[{table}]"
    yield from (f"{name} = {rank.counts[name]}" for name in COUNTS if name in rank.counts)
    if rank.functions:
        yield ""
        yield f"[{table}.functions]  # where they come from; not compared"
    for name, share in sorted(rank.functions.items()):
        known = ((what, getattr(share, what)) for what in _SHARES)
        parts = ", ".join(f"{what} = {count}" for what, count in known if count is not None)
        yield f"{_text(name)} = {{ {parts} }}"


def _key(name: str) -> str:
    bare = name and all(c.isascii() and (c.isalnum() or c in "-_") for c in name)
    return name if bare else _text(name)


def _text(value: str) -> str:
    """A basic string of TOML, of which JSON's are a part but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
