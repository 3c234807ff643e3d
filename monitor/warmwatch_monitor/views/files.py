"""Tables as files: CSV of the standard library, Parquet where pyarrow is there."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warmwatch.texts import printable
from warmwatch_monitor.errors import MissingExtraError
from warmwatch_monitor.export.tables import Rows

NO_PYARROW = "--parquet needs pyarrow: pip install pyarrow, or take --csv"
# what a spreadsheet would take for the begin of a formula
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_csv(tables: Sequence[Rows], folder: Path) -> list[Path]:
    """A file for each table. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    return [write_one_csv(one, folder / f"{one.name}.csv") for one in tables]


def write_one_csv(table: Rows, path: Path) -> Path:
    """Raises OSError."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table.columns)
        writer.writerows([_cell(value) for value in row] for row in table.rows)
    return path


def _cell(value: object) -> object:
    """A text may neither become a formula in whoever's spreadsheet nor steer a terminal."""
    if not isinstance(value, str):
        return value
    text = printable(value, keep="\t\r\n")
    return f"'{text}" if text.startswith(_FORMULA) else text


def write_parquet(tables: Sequence[Rows], folder: Path) -> list[Path]:
    """A file for each table.

    Raises:
        MissingExtraError: there is no pyarrow. OSError.
    """
    pyarrow, parquet = _pyarrow()
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for table in tables:
        columns = {name: [row[at] for row in table.rows] for at, name in enumerate(table.columns)}
        paths.append(folder / f"{table.name}.parquet")
        parquet.write_table(pyarrow.table(columns), paths[-1])
    return paths


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError(NO_PYARROW) from None
    return pyarrow, parquet
