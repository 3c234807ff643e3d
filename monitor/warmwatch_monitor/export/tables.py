"""A run summary as tables, and tables as CSV or Parquet files."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from warmwatch.shared.values import printable
from warmwatch_monitor.errors import MissingExtraError
from warmwatch_monitor.model import PHASES
from warmwatch_monitor.model.run_summary import Compiled, RunSummary, Samples
from warmwatch_monitor.output import safe_writing
from warmwatch_monitor.report.assembly import line

Value = str | int | float | None
_RANK = (
    *("rank", "state", "steps", "compile_seconds", "warmup_seconds", "recompiles"),
    *("graphs", "step_seconds"),
)
_COMPILED = (
    *("ended", "seconds", "step", "id", "kind", "name", "file", "line", "code"),
    *("reason", "category", "cache", "failure", "ops", "kernels", "at_limit"),
)


class Rows(Struct, frozen=True):
    """A table; a value of ``None`` is unknown."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


def tables(summary: RunSummary) -> tuple[Rows, ...]:
    """All tables that are not empty; ranks and compilations always."""
    gpus = _sampled("gpus", "uuid", summary.gpu_samples)
    found = (_ranks(summary), _compilations(summary), _steps(summary), gpus)
    return tuple(one for one in found if one.rows or one.name in ("ranks", "compilations"))


def _ranks(summary: RunSummary) -> Rows:
    lines = [line(one) for one in summary.ranks]
    rows = tuple(tuple(getattr(one, name) for name in _RANK) for one in lines)
    return Rows(
        "ranks", ("run", "id", *_RANK), tuple((summary.run, summary.id, *row) for row in rows)
    )


def _compilations(summary: RunSummary) -> Rows:
    columns = ("rank", *_COMPILED, *(f"{phase}_seconds" for phase in PHASES))
    rows = tuple((one.rank, *_compiled(each)) for one in summary.ranks for each in one.compiled)
    return Rows("compilations", columns, rows)


def _compiled(one: Compiled) -> tuple[Value, ...]:
    own = tuple(getattr(one, name) for name in _COMPILED)
    return (*own, *(one.phase_seconds.get(phase) for phase in PHASES))


def _steps(summary: RunSummary) -> Rows:
    """Samples of each rank from a daemon, every second or longer."""
    seen = {one.rank: one.samples for one in summary.ranks if one.samples is not None}
    return _sampled("samples", "rank", seen)


def _sampled(name: str, of: str, seen: Mapping[int, Samples] | Mapping[str, Samples]) -> Rows:
    names = tuple(dict.fromkeys(column for one in seen.values() for column in one.columns))
    rows = tuple(row for key, one in seen.items() for row in _rows(key, one, names))
    return Rows(name, (of, "epoch", "seconds", *names), rows)


def _rows(key: Value, seen: Samples, names: tuple[str, ...]) -> Iterator[tuple[Value, ...]]:
    empty = (None,) * len(seen.epochs)
    columns = [seen.columns.get(name, empty) for name in names]
    for at, epoch in enumerate(seen.epochs):
        yield (key, epoch, seen.seconds, *(column[at] for column in columns))


NO_PYARROW = "--parquet needs pyarrow: pip install pyarrow, or take --csv"
# a spreadsheet interprets text that begins with these as a formula
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_csv(tables: Sequence[Rows], folder: Path) -> list[Path]:
    """Write one file per table. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    return [write_one_csv(one, folder / f"{one.name}.csv") for one in tables]


def write_one_csv(table: Rows, path: Path) -> Path:
    """Write one table. Raises OSError."""
    made = io.StringIO(newline="")
    writer = csv.writer(made)
    writer.writerow(table.columns)
    writer.writerows([_cell(value) for value in row] for row in table.rows)
    safe_writing.replace(str(path), made.getvalue().encode("utf-8", "backslashreplace"))
    return path


def _cell(value: object) -> object:
    """A value that is safe in spreadsheets (no formula) and terminals (no escape codes)."""
    if not isinstance(value, str):
        return value
    text = printable(value, keep="\t\r\n")
    return f"'{text}" if text.startswith(_FORMULA) else text


def write_parquet(tables: Sequence[Rows], folder: Path) -> list[Path]:
    """Write one file per table.

    Raises:
        MissingExtraError: pyarrow is not installed. OSError.
    """
    pyarrow, parquet = _pyarrow()
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for table in tables:
        columns = {name: [row[at] for row in table.rows] for at, name in enumerate(table.columns)}
        made = io.BytesIO()
        parquet.write_table(pyarrow.table(columns), made)
        paths.append(folder / f"{table.name}.parquet")
        safe_writing.replace(str(paths[-1]), made.getvalue())
    return paths


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError(NO_PYARROW) from None
    return pyarrow, parquet
