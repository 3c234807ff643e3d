"""``warmwatch export``: a run for other programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import click
from msgspec import Struct

from warmwatch_monitor.client.completion import run_names
from warmwatch_monitor.errors import UsageError, WarmwatchError
from warmwatch_monitor.output import options, safe_writing
from warmwatch_monitor.output.console import as_json, note, say

if TYPE_CHECKING:
    from warmwatch_monitor.model.run_summary import RunSummary


class ExportedFile(Struct, frozen=True, kw_only=True):
    """A file that was written."""

    path: str
    """Its path."""
    format: Literal["perfetto", "csv", "parquet"]
    """Its format."""
    table: str | None = None
    """Name of its table; null for a trace."""


class ExportDocument(Struct, frozen=True, kw_only=True):
    """The files of `warmwatch export --json`."""

    schema_version: int = 1
    """1. Within a version, no key changes its meaning."""
    run: str
    """Name of the run."""
    id: str
    """Its id in the history."""
    files: list[ExportedFile]
    """The files that were written."""


@click.command()
@click.argument("run", required=False, shell_complete=run_names)
@click.option(
    "--perfetto",
    type=options.FILE,
    help="A trace for ui.perfetto.dev and chrome://tracing: compilations, phases, steps and GPU "
    "power on one axis; - is stdout.",
)
@click.option(
    "--csv",
    metavar="DIR|FILE",
    type=options.FILE,
    help="A folder of tables: ranks, compilations, samples, gpus; FILE.csv has the compilations.",
)
@click.option("--parquet", type=options.DIR, help="The same tables as Parquet; needs pyarrow.")
@click.option("--json", "is_json", is_flag=True, help="Print the written files as JSON.")
@options.directory
def export(
    run: str | None,
    perfetto: str | None,
    csv: str | None,
    parquet: str | None,
    is_json: bool,
    dir: str | None,
) -> None:
    """Write RUN to files for other programs. Without RUN: the run that began last.

    \b
    Exit code: 0 written; 1 cannot be written; 2 pyarrow is missing; 5 no such run
    """
    if perfetto is None and csv is None and parquet is None:
        raise UsageError("nothing to write: give --perfetto FILE, --csv DIR or --parquet DIR")
    if "-" in (csv, parquet):
        raise UsageError("--csv and --parquet write several tables: give a directory, not -")
    if is_json and perfetto == "-":
        raise UsageError("--perfetto - and --json both print on stdout: give the trace a file")
    from warmwatch_monitor.report.summaries import as_written, run_summary

    found = run_summary(run, dir=dir)
    files: list[ExportedFile] = []
    try:
        with as_written((found,)):
            for one in _written(found, perfetto, csv, parquet):
                files.append(one)
                opened = "; open it at https://ui.perfetto.dev or chrome://tracing"
                if not is_json:
                    note(f"warmwatch: wrote {one.path}{opened if one.format == 'perfetto' else ''}")
    except OSError as error:  # without a file name if the disk is full
        places = ", ".join(one for one in (perfetto, csv, parquet) if one is not None)
        raise WarmwatchError(
            f"{error.filename or places} cannot be written ({error.strerror}); name another place"
        ) from None
    if is_json:
        say(as_json(ExportDocument(run=found.run, id=found.id, files=files)))


def _written(
    summary: RunSummary, perfetto: str | None, csv: str | None, parquet: str | None
) -> Iterator[ExportedFile]:
    """Write the files; each one after it is written, except for a trace on stdout."""
    if perfetto is not None and (path := _trace(summary, perfetto)):
        yield ExportedFile(path=path, format="perfetto")
    if csv is None and parquet is None:
        return
    from pathlib import Path

    from warmwatch_monitor.export.tables import tables, write_csv, write_one_csv, write_parquet

    found = tables(summary)
    if csv is not None and csv.endswith(".csv"):
        compilations = next(one for one in found if one.name == "compilations")
        written = write_one_csv(compilations, Path(csv))
        yield ExportedFile(path=str(written), format="csv", table=compilations.name)
    elif csv is not None:
        for written in write_csv(found, Path(csv)):
            yield ExportedFile(path=str(written), format="csv", table=written.stem)
    if parquet is not None:
        for written in write_parquet(found, Path(parquet)):
            yield ExportedFile(path=str(written), format="parquet", table=written.stem)


def _trace(summary: RunSummary, path: str) -> str | None:
    """Write the trace; its path, or ``None`` if that is stdout."""
    import json

    from warmwatch_monitor.export.trace import trace

    text = json.dumps(trace(summary))
    if path == "-":
        say(text)
        return None
    safe_writing.replace(path, text.encode())
    return path
